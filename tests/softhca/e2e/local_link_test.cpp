// The same-host link between whole Hcas of two processes: what arrives, what is refused, and what happens when the
// other end dies.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <csignal>

#include "local_pair.hpp"
#include "softhca/shm_ring.hpp"

namespace tensorwire::softhca::testing {
namespace {

TEST_F(LocalLinkTest, EverySizeArrivesWhole) {
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_EQ(link(), "same-host link");
  for (const std::uint32_t bytes : {0U, 1U, 8U, 71U, 72U, 73U, 511U, 512U, 513U, 4095U, 4096U, 4097U, 8192U, 65'536U,
                                    131'072U, 262'144U, 1'048'575U, 1'048'576U}) {
    SCOPED_TRACE(bytes);
    ASSERT_NO_FATAL_FAILURE(expect_echo(0, bytes));
  }
  Random random(9);
  for (int i = 0; i < 200; ++i) {
    const std::uint32_t bytes = random.below(1U << random.below(20));
    ASSERT_NO_FATAL_FAILURE(expect_echo(random.below(kMemoryBytes - bytes), bytes));
  }
  EXPECT_EQ(parent_->counter("retransmitted_packets"), 0U);
  EXPECT_GT(parent_->counter("local_rx_inline_bytes"), 0U);
  EXPECT_GT(parent_->counter("local_rx_pulled_bytes"), kMemoryBytes);
  EXPECT_EQ(parent_->counter("tx_sends"), 0U) << "not a datagram was needed";
}

TEST_F(LocalLinkTest, MessagesLongerThanOnePass) {
  Endpoint::Settings large = patient();
  large.bytes = 16 << 20;
  ASSERT_NO_FATAL_FAILURE(start(large, large));
  ASSERT_NO_FATAL_FAILURE(expect_echo(1, (16 << 20) - 1));
  ASSERT_NO_FATAL_FAILURE(expect_echo(0, 3'000'001));
}

TEST_F(LocalLinkTest, SleepersAreWoken) {
  ASSERT_NO_FATAL_FAILURE(start());
  Ps worst = 0;
  for (int i = 0; i < 50; ++i) {
    std::this_thread::sleep_for(3ms);
    const Ps before = monotonic_now();
    ASSERT_NO_FATAL_FAILURE(expect_echo(0, i % 2 == 0 ? 8 : 20'000));
    worst = std::max(worst, monotonic_now() - before);
  }
  EXPECT_LT(worst, 500 * kMillisecond) << "woken by a timer, if at all";
  EXPECT_EQ(parent_->counter("retransmitted_packets"), 0U);
}

/// An application that waits for its completion event makes no pass: the engine threads alone move the message.
TEST_F(LocalLinkTest, NobodyNeedsToPoll) {
  ASSERT_NO_FATAL_FAILURE(start());
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(3ms);
    parent_->events = 0;
    parent_->cq->arm(false);
    ASSERT_EQ(parent_->write_imm(desk_->child, 0, 8, 0), 0);
    const Ps before = monotonic_now();
    while (parent_->events == 0 && monotonic_now() - before < kSecond) std::this_thread::sleep_for(100us);
    ASSERT_NE(parent_->events, 0) << "round " << i;
    ASSERT_TRUE(parent_->next());
    ASSERT_TRUE(parent_->next());
    ASSERT_EQ(parent_->post_receives(1), 0);
  }
}

/// More messages than the ring has slots, towards a process that does not run: the path is blocked, nothing is lost.
TEST_F(LocalLinkTest, AFullRingWaits) {
  Endpoint::Settings deep = patient();
  deep.depth = 2048;
  ASSERT_NO_FATAL_FAILURE(start(deep, deep));
  ASSERT_EQ(parent_->post_receives(1500), 0);
  ASSERT_EQ(::kill(child_->pid(), SIGSTOP), 0);
  std::this_thread::sleep_for(2ms);
  for (std::uint32_t i = 0; i < 1500; ++i) ASSERT_EQ(parent_->write_imm(desk_->child, i * 8, 8, i * 8), 0);
  std::this_thread::sleep_for(20ms);
  ASSERT_EQ(::kill(child_->pid(), SIGCONT), 0);
  std::uint32_t sent = 0;
  std::uint32_t echoed = 0;
  while (sent + echoed < 3000) {
    const auto completion = parent_->next();
    ASSERT_TRUE(completion) << sent << " sent, " << echoed << " came back";
    ASSERT_EQ(completion->status, WcStatus::kSuccess);
    if (completion->opcode == WcOpcode::kRecvWithImm) {
      ASSERT_EQ(completion->immediate, 8 * echoed++);
    } else {
      ++sent;
    }
  }
  EXPECT_EQ(parent_->counter("retransmitted_packets"), 0U);
}

// ---- checks of the responder

class LocalLinkRefusal : public LocalLinkTest, public ::testing::WithParamInterface<std::uint32_t> {};

TEST_P(LocalLinkRefusal, WrongKey) {
  ASSERT_NO_FATAL_FAILURE(start());
  Address target = desk_->child;
  target.rkey ^= 1;
  ASSERT_EQ(parent_->write_imm(target, 0, GetParam(), 0), 0);
  const auto completion = parent_->next();
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->status, WcStatus::kRemoteAccessError);
}

TEST_P(LocalLinkRefusal, RangeThatEndsBeyondTheRegion) {
  ASSERT_NO_FATAL_FAILURE(start());
  Address target = desk_->child;
  target.buffer += kMemoryBytes - GetParam() + 1;
  ASSERT_EQ(parent_->write_imm(target, 0, GetParam(), 0), 0);
  const auto completion = parent_->next();
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->status, WcStatus::kRemoteAccessError);
}

TEST_P(LocalLinkRefusal, SourceMemoryThatVanishedAfterRegistration) {
  ASSERT_NO_FATAL_FAILURE(start());
  void* const at = ::mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  const auto address = reinterpret_cast<std::uint64_t>(at);
  std::uint32_t key = 0;
  ASSERT_EQ(
      parent_->hca->register_memory(parent_->pd, address, kMemoryBytes, address, transport::kAccessLocalWrite, key), 0);
  ::munmap(at, kMemoryBytes);
  const transport::Sge sge{address, GetParam(), key};
  transport::SendWr wr;
  wr.opcode = transport::WrOpcode::kWriteImm;
  wr.remote_address = desk_->child.buffer;
  wr.rkey = desk_->child.rkey;
  wr.sges = {&sge, 1};
  ASSERT_EQ(parent_->hca->post_send(parent_->qp, wr, false), 0);
  const auto completion = parent_->next();
  ASSERT_TRUE(completion);
  // Small payloads are read by the sender, larger ones by the responder.
  EXPECT_EQ(completion->status,
            GetParam() <= kSlotDataBytes ? WcStatus::kLocalProtectionError : WcStatus::kRemoteOperationError);
  EXPECT_EQ(parent_->hca->deregister_memory(key), 0);
}

INSTANTIATE_TEST_SUITE_P(InlineAndPulled, LocalLinkRefusal, ::testing::Values(8U, 100'000U));

// ---- death

TEST_F(LocalLinkTest, AKilledPeerEndsInRetryExceeded) {
  Endpoint::Settings quick;
  quick.timeout = 8;
  quick.retry_cnt = 3;
  ASSERT_NO_FATAL_FAILURE(start(quick, quick));
  ASSERT_NO_FATAL_FAILURE(expect_echo(0, 8));
  child_->end();
  ASSERT_EQ(parent_->write_imm(desk_->child, 0, 8, 0), 0);
  ASSERT_EQ(parent_->write_imm(desk_->child, 0, 100'000, 0), 0);
  const auto first = parent_->next(3 * kSecond);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->status, WcStatus::kRetryExceeded);
  const auto second = parent_->next();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->status, WcStatus::kFlushError);
}

TEST_F(LocalLinkTest, APeerKilledWhileItsRingIsFull) {
  Endpoint::Settings quick;
  quick.timeout = 8;
  quick.retry_cnt = 3;
  quick.depth = 1024;
  ASSERT_NO_FATAL_FAILURE(start(quick, quick));
  ASSERT_EQ(::kill(child_->pid(), SIGSTOP), 0);
  std::this_thread::sleep_for(2ms);
  for (int i = 0; i < 600; ++i) ASSERT_EQ(parent_->write_imm(desk_->child, 0, 8, 0), 0);
  child_->end();
  for (int i = 0; i < 600; ++i) {
    const auto completion = parent_->next(3 * kSecond);
    ASSERT_TRUE(completion);
    EXPECT_EQ(completion->status, i == 0 ? WcStatus::kRetryExceeded : WcStatus::kFlushError) << i;
  }
}

/// A child that a peer forked holds copies of its descriptors, which must not keep the channels open.
TEST_F(LocalLinkTest, AForkedChildDoesNotKeepItsParentsChannelsOpen) {
  const std::uint32_t address = test_address(1);
  ChildProcess peer([&] {
    try {
      Endpoint self(open_at(loopback_device(), address, {}), patient());
      desk_->child = self.address();
      desk_->child_there = 1;
      wait_for(desk_->parent_there);
      if (self.connect(desk_->parent) != 0) return 2;
      const pid_t grandchild = ::fork();
      if (grandchild == 0) {
        for (;;) ::pause();
      }
      desk_->child_error = grandchild;
      for (;;) ::pause();
    } catch (const std::exception&) {
      return 1;
    }
  });
  wait_for(desk_->child_there);
  parent_.emplace(open_at(loopback_device(), test_address(0), {}), patient());
  desk_->parent = parent_->address();
  desk_->parent_there = 1;
  ASSERT_EQ(parent_->connect(desk_->child), 0);
  wait_for(desk_->child_error);
  ASSERT_GT(desk_->child_error, 0);
  EXPECT_EQ(parent_->counter("local_channels_closed"), 0U);
  peer.end();
  for (int i = 0; i < 2000 && parent_->counter("local_channels_closed") == 0; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(parent_->counter("local_channels_closed"), 1U);
  ::kill(desk_->child_error, SIGKILL);
}

/// A peer that comes back under its old address is a new peer.
TEST_F(LocalLinkTest, ASuccessorOfAKilledPeerConnects) {
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_NO_FATAL_FAILURE(expect_echo(0, 50'000));
  child_->end();
  parent_.reset();
  desk_->child_there = 0;
  desk_->parent_there = 0;
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_EQ(link(), "same-host link");
  ASSERT_NO_FATAL_FAILURE(expect_echo(0, 50'000));
}

// ---- one process

TEST(LocalLinkInOneProcess, AnHcaTalksToItself) {
  const auto hca = open_at(loopback_device(), test_address(0), {});
  Endpoint a(hca);
  Endpoint b(hca);
  ASSERT_EQ(a.connect(b.address()), 0);
  ASSERT_EQ(b.connect(a.address()), 0);
  EXPECT_EQ(hca->link_description(a.qp), "same-host link");
  ASSERT_EQ(b.post_receives(16), 0);
  for (const std::uint32_t bytes : {0U, 8U, 5000U, kMemoryBytes}) {
    std::ranges::fill(a.memory, static_cast<std::byte>(bytes % 251 + 1));
    std::this_thread::sleep_for(2ms);  // let the engine thread fall asleep
    ASSERT_EQ(a.write_imm(b.address(), 0, bytes, 1), 0);
    const auto arrived = b.next();
    ASSERT_TRUE(arrived);
    EXPECT_EQ(arrived->byte_len, bytes);
    EXPECT_TRUE(std::equal(a.memory.begin(), a.memory.begin() + bytes, b.memory.begin()));
    ASSERT_TRUE(a.next());
  }
}

TEST(LocalLinkInOneProcess, TargetMemoryThatVanishedIsARemoteOperationalError) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer does not survive a jump out of its memcpy";
  for (const std::uint32_t bytes : {8U, 100'000U}) {
    Endpoint a(open_at(loopback_device(), test_address(0), {}));
    Endpoint b(open_at(loopback_device(), test_address(1), {}));
    ASSERT_EQ(a.connect(b.address()), 0);
    ASSERT_EQ(b.connect(a.address()), 0);
    ASSERT_EQ(b.post_receives(1), 0);
    void* const at = ::mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const auto address = reinterpret_cast<std::uint64_t>(at);
    Address target = b.address();
    target.buffer = address;
    ASSERT_EQ(b.hca->register_memory(b.pd, address, kMemoryBytes, address,
                                     transport::kAccessLocalWrite | transport::kAccessRemoteWrite, target.rkey),
              0);
    ::munmap(at, kMemoryBytes);
    ASSERT_EQ(a.write_imm(target, 0, bytes, 1), 0);
    const auto completion = a.next();
    ASSERT_TRUE(completion);
    EXPECT_EQ(completion->status, WcStatus::kRemoteOperationError);
    EXPECT_EQ(b.hca->deregister_memory(target.rkey), 0);
  }
}

/// One direction over the ring, the other in packets: each end decides for what it sends.
TEST_F(LocalLinkTest, OneEndMayTakePackets) {
  Endpoint::Settings packets;
  packets.link = LinkChoice::kPackets;
  ASSERT_NO_FATAL_FAILURE(start(packets, {}));
  ASSERT_EQ(link(), "same-host link");
  for (const std::uint32_t bytes : {0U, 1U, 4096U, 4097U, 100'000U, kMemoryBytes}) {
    SCOPED_TRACE(bytes);
    ASSERT_NO_FATAL_FAILURE(expect_echo(0, bytes));
  }
}

TEST_F(LocalLinkTest, OneEndMayTakeSmallPackets) {
  Endpoint::Settings packets;
  packets.link = LinkChoice::kPackets;
  packets.mtu = transport::MtuCode::k1024;
  Endpoint::Settings ring;
  ring.mtu = transport::MtuCode::k1024;
  ASSERT_NO_FATAL_FAILURE(start(packets, ring));
  ASSERT_EQ(link(), "same-host link");
  for (const std::uint32_t bytes : {1U, 1024U, 1025U, 100'000U}) {
    SCOPED_TRACE(bytes);
    ASSERT_NO_FATAL_FAILURE(expect_echo(0, bytes));
  }
}

}  // namespace
}  // namespace tensorwire::softhca::testing
