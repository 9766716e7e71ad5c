// Late DMA: when packets leave, in which order, and by which seed. That their sources are read then, and what happens
// to memory and queue pairs that go before, is in e2e/late_dma_test.cpp.
#include "softhca/late_dma.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace tensorwire::softhca {
namespace {

transport::TxDesc packet(std::uint32_t id, bool has_source) {
  transport::TxDesc desc{};
  desc.src_qpn = id;
  desc.piece_count = has_source ? 1 : 0;
  return desc;
}

FaultConfig late(Ps bound, std::uint64_t seed = 1) {
  FaultConfig config;
  config.late_dma = bound;
  config.seed = seed;
  return config;
}

/// When each of `count` packets leaves that were all given at time 0.
std::vector<Ps> times(LateDma& late_dma, std::size_t count, bool have_sources = true) {
  std::vector<transport::TxDesc> descs;
  for (std::uint32_t id = 0; id < count; ++id) descs.push_back(packet(id, have_sources));
  late_dma.take(descs, 0);
  std::vector<Ps> result;
  for (std::uint32_t id = 0; id < count; ++id) {
    result.push_back(late_dma.next_deadline());
    EXPECT_EQ(late_dma.leave().src_qpn, id) << "in the engine's order";
  }
  EXPECT_TRUE(late_dma.empty());
  EXPECT_EQ(late_dma.next_deadline(), kNever);
  return result;
}

TEST(LateBy, CoversItsRangeAndDependsOnSeedAndPacket) {
  const FaultConfig config = late(100);
  std::set<Ps> seen;
  for (std::uint64_t index = 0; index < 5'000; ++index) {
    const Ps wait = late_by(config, index);
    ASSERT_GE(wait, 0);
    ASSERT_LE(wait, 100);
    seen.insert(wait);
  }
  EXPECT_EQ(seen.size(), 101U);
  int same = 0;
  for (std::uint64_t index = 0; index < 1'000; ++index) same += late_by(config, index) == late_by(late(100, 2), index);
  EXPECT_LT(same, 40) << "another seed, other times";
  EXPECT_GT(late_by(late(10 * kSecond), 7), 0) << "long ones do not overflow";
}

TEST(LateDma, EveryPacketWaitsForItselfAndForThoseAheadOfIt) {
  const FaultConfig config = late(200 * kMicrosecond);
  LateDma late_dma{config};
  const std::vector<Ps> left = times(late_dma, 40);
  Ps latest = 0;
  for (std::uint64_t index = 0; index < left.size(); ++index) {
    latest = std::max(latest, late_by(config, index));
    EXPECT_EQ(left[index], latest);
  }
}

TEST(LateDma, PacketsOneAfterAnotherAreLateByTheirOwnTimes) {
  const FaultConfig config = late(200 * kMicrosecond);
  LateDma late_dma{config};
  for (std::uint64_t index = 0; index < 100; ++index) EXPECT_EQ(times(late_dma, 1)[0], late_by(config, index));
}

TEST(LateDma, WithoutASourceNothingIsLate) {
  LateDma late_dma{late(kSecond)};
  EXPECT_EQ(times(late_dma, 3, false), (std::vector<Ps>{0, 0, 0}));
  transport::TxDesc inlined = packet(9, true);
  inlined.inline_pieces = true;
  late_dma.take({&inlined, 1}, 5);
  EXPECT_EQ(late_dma.next_deadline(), 5) << "inline data was read when it was posted";
}

TEST(LateDma, TheSameSeedGivesTheSameTimes) {
  LateDma one{late(kMillisecond, 3)}, two{late(kMillisecond, 3)}, other{late(kMillisecond, 4)};
  const auto first = times(one, 64);
  EXPECT_EQ(first, times(two, 64));
  EXPECT_NE(first, times(other, 64));
}

}  // namespace
}  // namespace tensorwire::softhca
