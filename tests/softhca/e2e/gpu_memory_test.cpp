// Memory of GPUs through whole Hcas, over packets and over the same-host link: every kind of message, each way between
// host and GPU. The double's copies are not there before somebody waits for them, so every comparison at a completion
// says that the Hca did.
#include <gtest/gtest.h>

#include "gpu_end.hpp"

namespace tensorwire::softhca::testing {
namespace {

using transport::WcStatus;
using transport::WrOpcode;

enum class Way : std::uint8_t { kPackets, kSameHost, kLossyPackets };

HcaOptions options_for(Way way, std::uint64_t seed) {
  if (way == Way::kPackets) return packets_only();
  if (way == Way::kSameHost) return {};
  return faulty("drop=3%,reorder=3%,dup=2%,corrupt=3%", seed);
}

struct GpuMemoryTest : ::testing::TestWithParam<Way> {
  GpuMemoryTest() {
    if (a.end.connect(b.end.address()) != 0 || b.end.connect(a.end.address()) != 0) throw std::runtime_error("connect");
  }
  GpuEnd a{test_address(0), options_for(GetParam(), 1), {.bytes = GpuEnd::kGpuBytes, .timeout = 10}};
  GpuEnd b{test_address(1), options_for(GetParam(), 2), {.bytes = GpuEnd::kGpuBytes, .timeout = 10}};

  void write_and_compare(const Place& from, std::uint64_t from_offset, const Place& to, std::uint64_t to_offset,
                         std::uint32_t bytes) {
    fill(from.bytes, bytes + from_offset);
    std::fill(to.bytes.begin(), to.bytes.end(), std::byte{0});
    ASSERT_EQ(b.post_receive({}), 0);
    ASSERT_EQ(a.post(WrOpcode::kWriteImm, {part(from, from_offset, bytes)}, to, to_offset), 0);
    ASSERT_EQ(b.next_status(), WcStatus::kSuccess);
    EXPECT_TRUE(same(to.bytes.subspan(to_offset, bytes), from.bytes.subspan(from_offset, bytes)));
    EXPECT_EQ(std::count(to.bytes.begin(), to.bytes.begin() + static_cast<std::ptrdiff_t>(to_offset), std::byte{0}),
              static_cast<std::ptrdiff_t>(to_offset))
        << "nothing before it";
    EXPECT_TRUE(std::all_of(to.bytes.begin() + static_cast<std::ptrdiff_t>(to_offset + bytes), to.bytes.end(),
                            [](std::byte byte) { return byte == std::byte{0}; }))
        << "nothing behind it";
    ASSERT_EQ(a.next_status(), WcStatus::kSuccess);
  }
};

TEST_P(GpuMemoryTest, WritesOfAnySizeAndAlignment) {
  EXPECT_EQ(a.end.hca->link_description(a.end.qp) == "same-host link", GetParam() == Way::kSameHost);
  for (const std::uint32_t bytes : {1U, 4U, 4095U, 4096U, 4097U, 65'536U, 100'001U, 262'144U, 1'048'577U}) {
    SCOPED_TRACE(bytes);
    ASSERT_NO_FATAL_FAILURE(write_and_compare(a.device, 0, b.device, 0, bytes));
    ASSERT_NO_FATAL_FAILURE(write_and_compare(a.device, 3, b.device, 4099, bytes));
    ASSERT_NO_FATAL_FAILURE(write_and_compare(a.host, 1, b.device, 5, bytes));
    ASSERT_NO_FATAL_FAILURE(write_and_compare(a.device, 7, b.host, 2, bytes));
  }
  EXPECT_GT(a.end.counter("gpu_bytes_read"), 3'000'000U);
  EXPECT_GT(b.end.counter("gpu_bytes_written"), 3'000'000U);
  EXPECT_GT(b.end.counter("gpu_settles"), 0U);
  EXPECT_EQ(a.end.counter("gpu_bytes_written"), 0U);
}

TEST_P(GpuMemoryTest, ReadsEachWay) {
  for (const auto& [from, to] : {std::pair{&b.device, &a.device}, {&b.host, &a.device}, {&b.device, &a.host}}) {
    for (const std::uint32_t bytes : {1U, 8U, 4096U, 300'003U}) {
      fill(from->bytes, bytes);
      std::fill(to->bytes.begin(), to->bytes.end(), std::byte{0});
      ASSERT_EQ(a.post(WrOpcode::kRead, {part(*to, 9, bytes)}, *from, 13), 0);
      ASSERT_EQ(a.next_status(), WcStatus::kSuccess);
      EXPECT_TRUE(same(to->bytes.subspan(9, bytes), from->bytes.subspan(13, bytes))) << bytes;
      EXPECT_EQ(to->bytes[8], std::byte{0});
      EXPECT_EQ(to->bytes[9 + bytes], std::byte{0});
    }
  }
}

TEST_P(GpuMemoryTest, AReadSeesTheWriteBeforeIt) {
  constexpr std::uint32_t kBytes = 50'000;
  for (int round = 0; round < 20; ++round) {
    fill(a.device.bytes, static_cast<std::uint64_t>(round));
    ASSERT_EQ(a.post(WrOpcode::kWrite, {part(a.device, 0, kBytes)}, b.device), 0);
    ASSERT_EQ(a.post(WrOpcode::kRead, {part(a.host, 0, kBytes)}, b.device), 0);
    ASSERT_EQ(a.next_status(), WcStatus::kSuccess);
    ASSERT_EQ(a.next_status(), WcStatus::kSuccess);
    ASSERT_TRUE(same(a.host.bytes.first(kBytes), a.device.bytes.first(kBytes))) << round;
  }
}

TEST_P(GpuMemoryTest, AWriteThatCompletedIsThere) {
  constexpr std::uint32_t kBytes = 30'000;
  for (int round = 0; round < 20; ++round) {
    fill(a.device.bytes, static_cast<std::uint64_t>(round) + 200);
    ASSERT_EQ(a.post(WrOpcode::kWrite, {part(a.device, 0, kBytes)}, b.device), 0);
    ASSERT_EQ(a.next_status(), WcStatus::kSuccess) << "acknowledged";
    ASSERT_TRUE(same(b.device.bytes.first(kBytes), a.device.bytes.first(kBytes))) << round;
  }
}

TEST_P(GpuMemoryTest, AnImmediateSaysThatTheWritesBeforeItAreThereToo) {
  constexpr std::uint32_t kBytes = 10'000;
  for (int round = 0; round < 20; ++round) {
    fill(a.device.bytes, static_cast<std::uint64_t>(round) + 100);
    ASSERT_EQ(b.post_receive({}), 0);
    for (std::uint64_t i = 0; i < 8; ++i) {  // from and to places that are no neighbours
      ASSERT_EQ(a.post(WrOpcode::kWrite, {part(a.device, 2 * i * kBytes, kBytes)}, b.device, 3 * i * kBytes), 0);
    }
    ASSERT_EQ(a.post(WrOpcode::kWriteImm, {}, b.device), 0);
    ASSERT_EQ(b.next_status(), WcStatus::kSuccess);
    for (std::uint64_t i = 0; i < 8; ++i) {
      ASSERT_TRUE(same(b.device.bytes.subspan(3 * i * kBytes, kBytes), a.device.bytes.subspan(2 * i * kBytes, kBytes)))
          << round << ", " << i;
    }
    for (int i = 0; i < 9; ++i) ASSERT_EQ(a.next_status(), WcStatus::kSuccess);
  }
}

TEST_P(GpuMemoryTest, SendsGatherAndScatterOverHostAndGpu) {
  fill(a.device.bytes, 1);
  fill(a.host.bytes, 2);
  for (int round = 0; round < 10; ++round) {
    ASSERT_EQ(b.post_receive({part(b.device, 5, 7'000), part(b.host, 0, 9'001), part(b.device, 100'000, 50'000)}), 0);
    ASSERT_EQ(
        a.post(WrOpcode::kSend, {part(a.host, 11, 20'000), part(a.device, 3, 30'000), part(a.host, 0, 100)}, b.device),
        0);
    ASSERT_EQ(b.next_status(), WcStatus::kSuccess);
    std::vector<std::byte> sent(a.host.bytes.begin() + 11, a.host.bytes.begin() + 20'011);
    sent.insert(sent.end(), a.device.bytes.begin() + 3, a.device.bytes.begin() + 30'003);
    sent.insert(sent.end(), a.host.bytes.begin(), a.host.bytes.begin() + 100);
    const std::span<const std::byte> all{sent};
    EXPECT_TRUE(same(b.device.bytes.subspan(5, 7'000), all.first(7'000)));
    EXPECT_TRUE(same(b.host.bytes.first(9'001), all.subspan(7'000, 9'001)));
    EXPECT_TRUE(same(b.device.bytes.subspan(100'000, 50'100 - 16'001), all.subspan(16'001)));
    ASSERT_EQ(a.next_status(), WcStatus::kSuccess);
  }
}

TEST_P(GpuMemoryTest, AtomicsOnTheGpuWithTheirAnswerOnTheGpu) {
  std::uint64_t word = 100;
  std::memcpy(b.device.bytes.data() + 64, &word, sizeof word);
  for (std::uint64_t i = 0; i < 50; ++i) {
    ASSERT_EQ(a.post(WrOpcode::kFetchAdd, {part(a.device, 8, 8)}, b.device, 64, 3), 0);
    ASSERT_EQ(a.next_status(), WcStatus::kSuccess);
    std::memcpy(&word, a.device.bytes.data() + 8, sizeof word);
    ASSERT_EQ(word, 100 + 3 * i);
  }
  std::memcpy(&word, b.device.bytes.data() + 64, sizeof word);
  EXPECT_EQ(word, 250U);
}

TEST_P(GpuMemoryTest, BothEndsWriteAtOnce) {
  constexpr std::uint32_t kBytes = 262'144;
  fill(a.device.bytes, 21);
  fill(b.device.bytes, 22);
  for (int round = 0; round < 10; ++round) {
    ASSERT_EQ(a.post_receive({}), 0);
    ASSERT_EQ(b.post_receive({}), 0);
    ASSERT_EQ(a.post(WrOpcode::kWriteImm, {part(a.device, 0, kBytes)}, b.device, kBytes), 0);
    ASSERT_EQ(b.post(WrOpcode::kWriteImm, {part(b.device, 0, kBytes)}, a.device, kBytes), 0);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(a.next_status(), WcStatus::kSuccess);
      ASSERT_EQ(b.next_status(), WcStatus::kSuccess);
    }
    ASSERT_TRUE(same(b.device.bytes.subspan(kBytes, kBytes), a.device.bytes.first(kBytes)));
    ASSERT_TRUE(same(a.device.bytes.subspan(kBytes, kBytes), b.device.bytes.first(kBytes)));
    a.device.bytes[5] ^= std::byte{1};
    b.device.bytes[77'777] ^= std::byte{1};
  }
}

TEST_P(GpuMemoryTest, ATargetThatWasFreedIsAnErrorOfBothEnds) {
  b.gpu->memory.free(b.device.address);
  ASSERT_EQ(b.post_receive({}), 0);
  ASSERT_EQ(a.post(WrOpcode::kWriteImm, {part(a.device, 0, 100'000)}, b.device), 0);
  EXPECT_EQ(a.next_status(), WcStatus::kRemoteOperationError);
  EXPECT_NE(b.next_status(), WcStatus::kSuccess) << "the receive is flushed";
}

TEST_P(GpuMemoryTest, ASourceThatWasFreedIsAnErrorOfTheSender) {
  a.gpu->memory.free_and_allocate_anew(a.device.address);
  ASSERT_EQ(a.post(WrOpcode::kWrite, {part(a.device, 0, 100'000)}, b.device), 0);
  EXPECT_EQ(a.next_status(), WcStatus::kLocalProtectionError);
}

TEST_P(GpuMemoryTest, RegionsMayGoWhileMessagesRun) {
  for (int round = 0; round < 20; ++round) {
    const DoubleMemory::Allocation at = b.gpu->memory.allocate(100'000);
    const Place target = b.registered(at);
    ASSERT_EQ(a.post(WrOpcode::kWrite, {part(a.device, 0, 100'000)}, round % 2 == 0 ? target : b.device), 0);
    ASSERT_EQ(b.end.hca->deregister_memory(target.key), 0);
    std::vector<std::byte> then(at.bytes.begin(), at.bytes.end());
    b.gpu->memory.free(at.address);
    const WcStatus status = a.next_status();
    EXPECT_TRUE(same(then, at.bytes)) << "nothing is written after deregistration";
    if (status != WcStatus::kSuccess) return;  // the queue pair is over; that may be in the first round
  }
}

TEST_P(GpuMemoryTest, WhatIsNotWhollyAllocatedIsRefused) {
  std::uint32_t key = 0;
  const std::uint64_t end = b.device.address + b.device.bytes.size();
  EXPECT_EQ(b.end.hca->register_memory(b.end.pd, end - 100, 200, end - 100, kEveryAccess, key), EFAULT);
  EXPECT_EQ(b.end.hca->register_memory(b.end.pd, end - 100, 100, end - 100, kEveryAccess, key), 0);
  EXPECT_EQ(b.end.hca->deregister_memory(key), 0);
}

TEST_P(GpuMemoryTest, ADmaBufIsReachedByItsAddress) {
  // The descriptor is only looked at: any file that has a size does.
  const int fd = ::memfd_create("dmabuf", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(fd, GpuEnd::kGpuBytes), 0);
  std::uint32_t key = 0;
  Hca& hca = *b.end.hca;
  const std::uint64_t at = b.device.address + 4096;
  EXPECT_EQ(hca.register_dmabuf(b.end.pd, -1, 0, 4096, at, kEveryAccess, key), EBADF);
  EXPECT_EQ(hca.register_dmabuf(b.end.pd, fd, 4096, GpuEnd::kGpuBytes, at, kEveryAccess, key), EINVAL) << "too short";
  EXPECT_EQ(hca.register_dmabuf(b.end.pd, fd, 0, 4096, b.host.address, kEveryAccess, key), EINVAL) << "no GPU's";
  ASSERT_EQ(hca.register_dmabuf(b.end.pd, fd, 4096, 8192, at, kEveryAccess, key), 0);
  ::close(fd);
  const Place place{at, key, b.device.bytes.subspan(4096, 8192)};
  ASSERT_NO_FATAL_FAILURE(write_and_compare(a.host, 0, place, 10, 8'000));
  EXPECT_EQ(hca.deregister_memory(key), 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, GpuMemoryTest, ::testing::Values(Way::kPackets, Way::kSameHost, Way::kLossyPackets),
                         [](const auto& param_info) {
                           switch (param_info.param) {
                             case Way::kPackets:
                               return "Packets";
                             case Way::kSameHost:
                               return "SameHostLink";
                             default:
                               return "LossyPackets";
                           }
                         });

// ---- the fault gpu_write_late

struct GpuWriteLate : ::testing::Test {
  static constexpr std::uint32_t kBytes = 100'000;
  GpuEnd a{test_address(0), packets_only()};
  GpuEnd b{test_address(1), faulty("gpu_write_late=1s", 1)};
  /// The consumer's own connection, for the flush: from b to b.
  Endpoint self{b.end.hca};

  void SetUp() override {
    ASSERT_EQ(a.end.connect(b.end.address()), 0);
    ASSERT_EQ(b.end.connect(a.end.address()), 0);
    ASSERT_EQ(self.connect(self.address()), 0);
    fill(a.device.bytes, 3);
    ASSERT_EQ(b.post_receive({}), 0);
    ASSERT_EQ(a.post(WrOpcode::kWriteImm, {part(a.device, 0, kBytes)}, b.device), 0);
    ASSERT_EQ(b.next_status(), WcStatus::kSuccess);
  }
  [[nodiscard]] bool there() const { return same(b.device.bytes.first(kBytes), a.device.bytes.first(kBytes)); }
};

TEST_F(GpuWriteLate, WithoutAFlushTheBytesAreMissingForAWhile) {
  EXPECT_FALSE(there()) << "the completion came first";
  const Ps end = monotonic_now() + 5 * kSecond;
  while (!there() && monotonic_now() < end) std::ignore = b.end.next(kMillisecond);
  EXPECT_TRUE(there()) << "they come by themselves";
}

TEST_F(GpuWriteLate, WithAFlushTheyAreThere) {
  std::uint32_t key = 0;  // in the protection domain of the connection that asks
  ASSERT_EQ(
      self.hca->register_memory(self.pd, b.device.address, GpuEnd::kGpuBytes, b.device.address, kEveryAccess, key), 0);
  b.device.bytes[kBytes + 10] = std::byte{42};
  const transport::Sge sge{reinterpret_cast<std::uint64_t>(self.memory.data()), 1, self.key};
  transport::SendWr flush;
  flush.opcode = WrOpcode::kRead;
  flush.signaled = true;
  flush.remote_address = b.device.address + kBytes + 10;  // of the region; not of what was written
  flush.rkey = key;
  flush.sges = {&sge, 1};
  ASSERT_EQ(self.hca->post_send(self.qp, flush, false), 0);
  const auto flushed = self.next();
  ASSERT_TRUE(flushed);
  ASSERT_EQ(flushed->status, WcStatus::kSuccess);
  EXPECT_TRUE(there());
  EXPECT_EQ(self.memory[0], std::byte{42});
  EXPECT_EQ(self.hca->deregister_memory(key), 0);
}

}  // namespace
}  // namespace tensorwire::softhca::testing
