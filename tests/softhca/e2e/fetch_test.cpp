// READ and atomics between whole Hcas: over packets and over the same-host link, in one process and between two, under
// faults, from memory that vanished, and into stock receive buffers.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <set>

#include "local_pair.hpp"

namespace tensorwire::softhca::testing {
namespace {

void randomize(std::span<std::byte> bytes, std::uint64_t seed) {
  Random random{seed};
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
}

void expect_success(const Endpoint& of, WcOpcode opcode, std::uint64_t wr_id) {
  const auto done = of.next(20 * kSecond);
  ASSERT_TRUE(done);
  ASSERT_EQ(done->status, WcStatus::kSuccess);
  ASSERT_EQ(done->opcode, opcode);
  ASSERT_EQ(done->wr_id, wr_id);
}

std::uint64_t word(const Endpoint& of, std::size_t offset) {
  std::uint64_t value = 0;
  std::memcpy(&value, of.memory.data() + offset, sizeof value);
  return value;
}

class FetchOver : public ::testing::TestWithParam<LinkChoice> {
 protected:
  static Endpoint::Settings settings() {
    Endpoint::Settings with;
    with.link = GetParam();
    return with;
  }
  Endpoint a{open_at(loopback_device(), test_address(0), {}), settings()};
  Endpoint b{open_at(loopback_device(), test_address(1), {}), settings()};

  void SetUp() override {
    ASSERT_EQ(a.connect(b.address()), 0);
    ASSERT_EQ(b.connect(a.address()), 0);
    randomize(b.memory, 1);
  }
};

TEST_P(FetchOver, ReadOfEverySize) {
  for (const std::uint32_t bytes : {0U, 1U, 3U, 72U, 73U, 4095U, 4096U, 4097U, 65'536U, 262'144U, 1'048'576U}) {
    SCOPED_TRACE(bytes);
    std::ranges::fill(a.memory, std::byte{0});
    ASSERT_EQ(a.read(b.address(), 0, bytes, bytes), 0);
    ASSERT_NO_FATAL_FAILURE(expect_success(a, WcOpcode::kRead, bytes));
    EXPECT_TRUE(std::equal(a.memory.begin(), a.memory.begin() + bytes, b.memory.begin()));
    EXPECT_TRUE(std::all_of(a.memory.begin() + bytes, a.memory.end(), [](std::byte x) { return x == std::byte{0}; }));
  }
  EXPECT_EQ(a.counter("retransmitted_packets"), 0U);
  EXPECT_EQ(a.counter("implied_nak_seq_err"), 0U);
}

TEST_P(FetchOver, AtomicsOfTwoSidesMeetInOneWord) {
  if (kThreadSanitizer) GTEST_SKIP() << "it sees no order through a ring that one process maps at two addresses";
  constexpr std::uint64_t kEach = 2000;
  // The owner of the word counts, too, with an instruction of its own.
  const std::atomic_ref<std::uint64_t> shared(*reinterpret_cast<std::uint64_t*>(b.memory.data()));
  shared.store(0);
  std::thread owner([&] {
    for (std::uint64_t i = 0; i < kEach; ++i) shared.fetch_add(1);
  });
  std::uint64_t posted = 0;
  for (std::uint64_t done = 0; done < kEach; ++done) {
    while (posted < kEach && posted < done + 64) ASSERT_EQ(a.fetch_add(b.address(), 0, 1, posted++), 0);
    ASSERT_NO_FATAL_FAILURE(expect_success(a, WcOpcode::kFetchAdd, done));
  }
  owner.join();
  EXPECT_EQ(shared.load(), 2 * kEach);
}

TEST_P(FetchOver, SourceThatWasUnmappedIsARemoteOperationalError) {
  if (kThreadSanitizer) GTEST_SKIP();
  for (const bool atomic : {false, true}) {
    SCOPED_TRACE(atomic ? "atomic" : "read");
    Endpoint x{a.hca, settings()};
    Endpoint y{b.hca, settings()};
    ASSERT_EQ(x.connect(y.address()), 0);
    ASSERT_EQ(y.connect(x.address()), 0);
    constexpr std::size_t kLength = 1 << 16;
    void* const at = ::mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    Address target = y.address();
    target.buffer = reinterpret_cast<std::uint64_t>(at);
    ASSERT_EQ(y.hca->register_memory(y.pd, target.buffer, kLength, target.buffer, kEveryAccess, target.rkey), 0);
    ::munmap(at, kLength);
    ASSERT_EQ(atomic ? x.fetch_add(target, 0, 1, 1) : x.read(target, 0, kLength, 1), 0);
    const auto done = x.next();
    ASSERT_TRUE(done);
    EXPECT_EQ(done->status, WcStatus::kRemoteOperationError);
    EXPECT_EQ(y.hca->deregister_memory(target.rkey), 0);
  }
}

TEST_P(FetchOver, LandingThatWasUnmappedIsALocalProtectionError) {
  if (kThreadSanitizer) GTEST_SKIP();
  for (const bool atomic : {false, true}) {
    SCOPED_TRACE(atomic ? "atomic" : "read");
    Endpoint x{a.hca, settings()};
    Endpoint y{b.hca, settings()};
    ASSERT_EQ(x.connect(y.address()), 0);
    ASSERT_EQ(y.connect(x.address()), 0);
    constexpr std::uint32_t kLength = 1 << 16;
    void* const at = ::mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const auto address = reinterpret_cast<std::uint64_t>(at);
    std::uint32_t key = 0;
    ASSERT_EQ(x.hca->register_memory(x.pd, address, kLength, address, transport::kAccessLocalWrite, key), 0);
    ::munmap(at, kLength);
    const transport::Sge sge{address, atomic ? transport::kAtomicBytes : kLength, key};
    transport::SendWr wr;
    wr.opcode = atomic ? transport::WrOpcode::kFetchAdd : transport::WrOpcode::kRead;
    wr.remote_address = y.address().buffer;
    wr.rkey = y.key;
    wr.sges = {&sge, 1};
    ASSERT_EQ(x.hca->post_send(x.qp, wr, false), 0);
    const auto done = x.next();
    ASSERT_TRUE(done);
    EXPECT_EQ(done->status, WcStatus::kLocalProtectionError);
    EXPECT_EQ(x.hca->deregister_memory(key), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Links, FetchOver, ::testing::Values(LinkChoice::kPackets, LinkChoice::kAuto),
                         [](const auto& param) { return param.param == LinkChoice::kPackets ? "Packets" : "Auto"; });

TEST_F(LocalLinkTest, ReadAndAtomicsFromAnotherProcess) {
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_EQ(link(), "same-host link");
  for (const std::uint32_t bytes : {1U, 4096U, 100'000U, kMemoryBytes}) {
    SCOPED_TRACE(bytes);
    randomize(std::span(parent_->memory).first(bytes), bytes);
    const std::vector<std::byte> sent(parent_->memory.begin(), parent_->memory.begin() + bytes);
    ASSERT_EQ(parent_->write(desk_->child, 0, bytes, 7), 0);
    ASSERT_NO_FATAL_FAILURE(expect_success(*parent_, WcOpcode::kWrite, 7));
    std::ranges::fill(parent_->memory, std::byte{0});
    ASSERT_EQ(parent_->read(desk_->child, 0, bytes, 8), 0);
    ASSERT_NO_FATAL_FAILURE(expect_success(*parent_, WcOpcode::kRead, 8));
    ASSERT_TRUE(std::equal(sent.begin(), sent.end(), parent_->memory.begin()));
  }
  std::memset(parent_->memory.data(), 0, 8);
  ASSERT_EQ(parent_->write(desk_->child, 0, 8, 9), 0);
  ASSERT_NO_FATAL_FAILURE(expect_success(*parent_, WcOpcode::kWrite, 9));
  for (std::uint64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(parent_->fetch_add(desk_->child, 0, 3, i), 0);
    ASSERT_NO_FATAL_FAILURE(expect_success(*parent_, WcOpcode::kFetchAdd, i));
    ASSERT_EQ(word(*parent_, 0), 3 * i);
  }
  EXPECT_EQ(parent_->counter("tx_sends"), 0U) << "not a datagram was needed";
  EXPECT_EQ(parent_->counter("retransmitted_packets"), 0U);
}

TEST_F(LocalLinkTest, ReadsWhereOneEndTakesSmallPackets) {
  Endpoint::Settings packets = patient();
  packets.link = LinkChoice::kPackets;
  packets.mtu = transport::MtuCode::k1024;
  Endpoint::Settings ring = patient();
  ring.mtu = transport::MtuCode::k1024;
  ASSERT_NO_FATAL_FAILURE(start(packets, ring));
  ASSERT_EQ(link(), "same-host link");
  randomize(parent_->memory, 3);
  const std::vector<std::byte> sent = parent_->memory;
  ASSERT_EQ(parent_->write(desk_->child, 0, kMemoryBytes, 7), 0);
  ASSERT_NO_FATAL_FAILURE(expect_success(*parent_, WcOpcode::kWrite, 7));
  std::ranges::fill(parent_->memory, std::byte{0});
  ASSERT_EQ(parent_->read(desk_->child, 0, kMemoryBytes, 8), 0);
  ASSERT_NO_FATAL_FAILURE(expect_success(*parent_, WcOpcode::kRead, 8));
  EXPECT_EQ(sent, parent_->memory);
}

/// Nobody paces the responder but the requester, by what it asks for.
TEST(ReadInto, AStockReceiveBufferLosesNothing) {
  const auto small = [] {
    HcaOptions options = packets_only();
    options.receive_buffer = kStockReceiveBuffer;
    return options;
  };
  Endpoint a{open_at(loopback_device(), test_address(0), small())};
  Endpoint b{open_at(loopback_device(), test_address(1), small())};
  ASSERT_EQ(a.connect(b.address()), 0);
  ASSERT_EQ(b.connect(a.address()), 0);
  randomize(b.memory, 5);
  for (std::uint64_t round = 0; round < 4; ++round) {
    ASSERT_EQ(a.read(b.address(), 0, kMemoryBytes, round), 0);
    ASSERT_NO_FATAL_FAILURE(expect_success(a, WcOpcode::kRead, round));
    EXPECT_EQ(a.memory, b.memory);
  }
  EXPECT_EQ(a.counter("rx_discards"), 0U);
  EXPECT_EQ(a.counter("retransmitted_packets"), 0U);
}

class FetchFaults : public ::testing::TestWithParam<const char*> {};

TEST_P(FetchFaults, EveryByteArrivesAndEveryAtomicHappensOnce) {
  Endpoint::Settings settings;
  settings.timeout = 1;  // the floor of 20 ms decides
  Endpoint a{open_at(loopback_device(), test_address(0), faulty(GetParam(), 1)), settings};
  Endpoint b{open_at(loopback_device(), test_address(1), faulty(GetParam(), 2)), settings};
  ASSERT_EQ(a.connect(b.address()), 0);
  ASSERT_EQ(b.connect(a.address()), 0);
  randomize(b.memory, 5);
  const std::uint64_t before = word(b, kMemoryBytes - 8);
  constexpr std::uint32_t kMessages = 20, kEach = 40'000;
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(a.read(b.address(), i * kEach, kEach, 2 * i), 0);
    ASSERT_EQ(a.fetch_add(b.address(), kMemoryBytes - 8, 1, 2 * i + 1), 0);
  }
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    ASSERT_NO_FATAL_FAILURE(expect_success(a, WcOpcode::kRead, 2 * i));
    ASSERT_NO_FATAL_FAILURE(expect_success(a, WcOpcode::kFetchAdd, 2 * i + 1));
  }
  EXPECT_TRUE(std::equal(a.memory.begin(), a.memory.begin() + kMessages * kEach, b.memory.begin()));
  EXPECT_EQ(word(b, kMemoryBytes - 8), before + kMessages);
  EXPECT_EQ(word(a, kMemoryBytes - 8), before + kMessages - 1);
}

INSTANTIATE_TEST_SUITE_P(Rates, FetchFaults,
                         ::testing::Values("drop=1%", "drop=5%", "dup=5%", "reorder=5%", "corrupt=5%",
                                           "drop=1%,dup=1%,reorder=1%,corrupt=1%"));

}  // namespace
}  // namespace tensorwire::softhca::testing
