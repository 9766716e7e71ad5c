// The price of plans: the closed forms of the alpha-beta model where nothing else costs, and what each parameter does.
#include "collective/cost.hpp"

#include <gtest/gtest.h>

#include "plan_catalogue.hpp"

namespace tensorwire::collective {
namespace {

constexpr double kHop = 2;

FabricCost nic(double gbit) {
  FabricCost cost;
  cost.hop_us = kHop;
  cost.wire_bytes_per_us = gbit * 1000 / 8;
  return cost;
}

/// Microseconds that a message of so many bytes takes on the wire.
double b(double bytes, const FabricCost& cost) {
  return static_cast<double>(wire_bytes(static_cast<std::uint64_t>(bytes), cost.mtu)) / cost.wire_bytes_per_us;
}

double priced(Algorithm algorithm, std::uint32_t ranks, std::uint64_t bytes, const FabricCost& cost) {
  return price(build_plan({ranks, bytes / 4, DType::kFloat32, Op::kSum}, algorithm), cost).us;
}

TEST(Cost, BytesOnTheWire) {
  EXPECT_EQ(wire_bytes(0, 4096), 82U + 20U);
  EXPECT_EQ(wire_bytes(4096, 4096), 4096U + 82U + 20U);
  EXPECT_EQ(wire_bytes(262'144, 4096), 262'144U + 64U * 82U + 20U);
  EXPECT_EQ(wire_bytes(262'144, 0), 262'144U);
}

TEST(Cost, ClosedFormsOfAnIdleFabric) {
  constexpr double kBytes = 256 << 10;
  for (const double gbit : {100.0, 400.0}) {
    const FabricCost cost = nic(gbit);
    for (const std::uint32_t n : {2U, 4U, 8U, 16U}) {
      const double others = n - 1;
      const double one_shot = kHop + others * b(kBytes, cost);
      const double two_shot = 2 * (kHop + others * b(kBytes / n, cost));
      // The slot header of 64 bytes is what the closed forms do not know.
      EXPECT_NEAR(priced(Algorithm::kOneShot, n, 256 << 10, cost), one_shot, one_shot * 0.005);
      EXPECT_NEAR(priced(Algorithm::kTwoShot, n, 256 << 10, cost), two_shot, two_shot * 0.005);
      if (!can_build(Collective::kAllReduce, Algorithm::kRing)) continue;
      const double ring = 2 * others * (kHop + b(kBytes / n, cost));
      // The last write is from the user's output: with more than two ranks its acknowledgement comes last.
      EXPECT_GE(priced(Algorithm::kRing, n, 256 << 10, cost), ring * 0.99);
      EXPECT_LE(priced(Algorithm::kRing, n, 256 << 10, cost), (ring + kHop) * 1.01);
    }
  }
  // As published for 8 ranks at 400 Gb/s.
  EXPECT_NEAR(priced(Algorithm::kOneShot, 8, 256 << 10, nic(400)), 39.44, 0.1);
  EXPECT_NEAR(priced(Algorithm::kTwoShot, 8, 256 << 10, nic(400)), 13.36, 0.1);
}

/// What an operation costs once is not paid again for each hop, nor for each segment.
TEST(Cost, TheStartIsPaidOnce) {
  FabricCost cost = nic(100);
  const auto all_of = [&](Algorithm algorithm, std::uint64_t bytes) {
    return price_candidate({2, bytes / 4, DType::kFloat32, Op::kSum}, algorithm, cost, 256 << 10, 2)->price.us;
  };
  const double one_hop = all_of(Algorithm::kOneShot, 1024);
  const double two_hops = all_of(Algorithm::kTwoShot, 1024);
  const double segments = all_of(Algorithm::kOneShot, 8 << 20);
  const double alone = priced(Algorithm::kOneShot, 1, 1024, cost);
  cost.start_us = 50;
  EXPECT_DOUBLE_EQ(all_of(Algorithm::kOneShot, 1024), one_hop + 50);
  EXPECT_DOUBLE_EQ(all_of(Algorithm::kTwoShot, 1024), two_hops + 50);
  EXPECT_DOUBLE_EQ(all_of(Algorithm::kOneShot, 8 << 20), segments + 50);
  EXPECT_DOUBLE_EQ(priced(Algorithm::kOneShot, 1, 1024, cost), alone) << "nobody else takes part";
}

TEST(Cost, EachParameterCosts) {
  const double free = priced(Algorithm::kTwoShot, 4, 64 << 10, nic(100));
  FabricCost cost = nic(100);
  cost.message_us = 1;
  EXPECT_GT(priced(Algorithm::kTwoShot, 4, 64 << 10, cost), free + 1);
  cost = nic(100);
  cost.arrival_us = 1;
  EXPECT_GE(priced(Algorithm::kTwoShot, 4, 64 << 10, cost), free + 2) << "the last arrival of both phases";
  cost = nic(100);
  cost.reduce_bytes_per_us = 64 << 10;
  EXPECT_NEAR(priced(Algorithm::kTwoShot, 4, 64 << 10, cost), free + 1, 0.01) << "four quarters are read";
  cost = nic(100);
  cost.copy_bytes_per_us = 16 << 10;
  EXPECT_GE(priced(Algorithm::kTwoShot, 4, 64 << 10, cost), free + 0.99) << "at least the last quarter is copied out";
}

TEST(Cost, SegmentsArePacedByTheBusiestLink) {
  const Shape shape{2, 8 << 20, DType::kFloat32, Op::kSum};
  const auto candidate = price_candidate(shape, Algorithm::kTwoShot, nic(100), 256 << 10, 2);
  ASSERT_TRUE(candidate);
  EXPECT_GT(candidate->cut.segments, 32U);
  const double at_line_rate = b(32 << 20, nic(100));
  EXPECT_GE(candidate->price.us, at_line_rate);
  EXPECT_LE(candidate->price.us, at_line_rate * 1.2);
}

TEST(Cost, SmallTensorsGoInOneShotAndLargeOnesInTwo) {
  const auto cheapest = [](std::uint64_t bytes) {
    return price_candidates({8, bytes / 4, DType::kFloat32, Op::kSum}, nic(400), 1 << 20, 2)[0].algorithm;
  };
  EXPECT_EQ(cheapest(16 << 10), Algorithm::kOneShot);
  EXPECT_NE(cheapest(24 << 10), Algorithm::kOneShot);
}

TEST(Cost, EveryPlanHasAPrice) {
  for (const Collective collective : kCollectives) {
    for (const Algorithm algorithm : kAlgorithms) {
      for (const Recipe& recipe : recipes(collective, algorithm, 6, 1000)) {
        const Price of_it = price(recipe.plan(), nic(100));
        EXPECT_GE(of_it.us, kHop) << recipe.name();
        EXPECT_GE(of_it.us, of_it.busy_us) << recipe.name();
        EXPECT_GT(of_it.messages, 0U) << recipe.name();
      }
    }
  }
}

TEST(Cost, WhatNothingCanDoIsAnError) {
  EXPECT_THROW(static_cast<void>(price_candidates({0, 1, DType::kFloat32, Op::kSum}, nic(100), 1 << 20, 2)), Error);
}

}  // namespace
}  // namespace tensorwire::collective
