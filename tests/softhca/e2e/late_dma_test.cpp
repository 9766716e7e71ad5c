// Late DMA on real Hcas: the source of a packet is read when it leaves, each time it leaves; and never after the
// application has its memory back.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "endpoint.hpp"

namespace tensorwire::softhca::testing {
namespace {

constexpr Ps kLateBound = 100 * kMillisecond;
constexpr const char* kFirstTryIsLost = "late_dma=100ms,drop=50%,opcode=WRITE_ONLY_IMM";

/// A seed with which the first packet, or the first two, wait at least half of kLateBound each; of kFirstTryIsLost also
/// one that loses the first and not the second.
std::uint64_t seed_for(std::string_view faults) {
  FaultConfig config = parse_faults(faults);
  for (config.seed = 1;; ++config.seed) {
    const bool late = late_by(config, 0) > kLateBound / 2 && late_by(config, 1) > kLateBound / 2;
    const auto lost = [&](std::uint64_t index) { return judge(config, index, wire::Opcode::kRcWriteOnlyImm).drop; };
    if (late && (config.drop == 0 || (lost(0) && !lost(1)))) return config.seed;
  }
}

/// A connected pair of which `a` is late.
struct LatePair {
  Endpoint a, b;
  explicit LatePair(std::string_view faults = "late_dma=100ms", Endpoint::Settings settings = {.timeout = 1})
      : a(open_at(loopback_device(), test_address(0), faulty(faults, seed_for(faults))), settings),
        b(open_at(loopback_device(), test_address(1), packets_only()), settings) {
    if (a.connect(b.address()) != 0 || b.connect(a.address()) != 0) throw std::runtime_error("connect");
    if (b.post_receives(4) != 0) throw std::runtime_error("post_receives");
  }
};

/// Sends a word that tells, at any moment, how long ago it was posted. @return when it was read.
Ps age_when_read(LatePair& pair) {
  const std::atomic_ref<Ps> source{*reinterpret_cast<Ps*>(pair.a.memory.data())};
  const Ps posted = monotonic_now();
  EXPECT_EQ(pair.a.write_imm(pair.b.address(), 0, sizeof(Ps), 0), 0);
  while (monotonic_now() - posted < 10 * kSecond) {
    source.store(monotonic_now() - posted);
    if (!pair.b.next(0) && !pair.b.next(kMillisecond)) continue;
    Ps age = 0;
    std::memcpy(&age, pair.b.memory.data(), sizeof age);
    return age;
  }
  ADD_FAILURE() << "nothing arrived";
  return 0;
}

TEST(LateDma, TheSourceIsReadWhenThePacketLeaves) {
  if (kThreadSanitizer) GTEST_SKIP() << "it writes what the HCA reads";
  LatePair pair{"late_dma=100ms", {.timeout = 16}};  // not so late that it would be sent again
  // The word is at most a few milliseconds old when it is read.
  EXPECT_GT(age_when_read(pair), kLateBound / 2 - 20 * kMillisecond);
  EXPECT_EQ(pair.a.counter("retransmitted_packets"), 0U);
}

TEST(LateDma, ARetransmissionWaitsAndReadsAnew) {
  if (kThreadSanitizer) GTEST_SKIP() << "it writes what the HCA reads";
  LatePair pair{kFirstTryIsLost};
  EXPECT_GT(age_when_read(pair), 2 * (kLateBound / 2) - 20 * kMillisecond);
  EXPECT_GE(pair.a.counter("retransmitted_packets"), 1U);
}

TEST(LateDma, ARegionThatGoesIsReadBefore) {
  LatePair pair;
  constexpr std::size_t kBytes = 1 << 16;
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(memory, 7, kBytes);
  const auto at = reinterpret_cast<std::uint64_t>(memory);
  std::uint32_t key = 0;
  ASSERT_EQ(pair.a.hca->register_memory(pair.a.pd, at, kBytes, at, transport::kAccessLocalWrite, key), 0);
  const transport::Sge sge{at, kBytes, key};
  transport::SendWr wr;
  wr.opcode = transport::WrOpcode::kWriteImm;
  wr.remote_address = pair.b.address().buffer;
  wr.rkey = pair.b.key;
  wr.sges = {&sge, 1};
  ASSERT_EQ(pair.a.hca->post_send(pair.a.qp, wr, false), 0);
  const Ps end = monotonic_now() + 5 * kSecond;
  while (pair.a.counter("port_xmit_packets") < kBytes / 4096 && monotonic_now() < end) std::this_thread::yield();
  ASSERT_EQ(pair.a.hca->deregister_memory(key), 0);
  munmap(memory, kBytes);
  const auto arrived = pair.b.next();
  ASSERT_TRUE(arrived);
  EXPECT_EQ(arrived->status, transport::WcStatus::kSuccess);
  EXPECT_TRUE(std::all_of(pair.b.memory.begin(), pair.b.memory.begin() + kBytes,
                          [](std::byte byte) { return byte == std::byte{7}; }));
}

TEST(LateDma, QueuePairsMayGoWhilePacketsWait) {
  const auto hca = open_at(loopback_device(), test_address(0), faulty("late_dma=100ms", 1));
  const auto peer = open_at(loopback_device(), test_address(1), packets_only());
  for (int i = 0; i < 20; ++i) {
    Endpoint a{hca}, b{peer};
    ASSERT_EQ(a.connect(b.address()), 0);
    ASSERT_EQ(b.connect(a.address()), 0);
    ASSERT_EQ(b.post_receives(8), 0);
    for (std::uint32_t k = 0; k < 8; ++k) ASSERT_EQ(a.write_imm(b.address(), 0, 100'000, k), 0);
  }
}

TEST(LateDma, WhatFailedIsReadNoMore) {
  LatePair pair{"late_dma=100ms", {.timeout = 1, .retry_cnt = 0}};
  ASSERT_EQ(pair.a.write_imm(pair.b.address(), 0, 8, 0), 0);
  const auto failed = pair.a.next();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->status, transport::WcStatus::kRetryExceeded) << "20 ms are over before the packet leaves";
  EXPECT_FALSE(pair.b.next(2 * kLateBound)) << "the memory may be somebody else's by now";
}

}  // namespace
}  // namespace tensorwire::softhca::testing
