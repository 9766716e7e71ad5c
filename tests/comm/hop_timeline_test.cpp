// Clocks of GPU and host from the rounds that both wrote down, and the timeline that is drawn on one of them.
#include "comm/gpu/hop_timeline.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace tensorwire::comm {
namespace {

/// A round of a GPU whose clock shows `ahead` more than the host's; the doorbell took `bell`, the release word `word`.
Hops round_of(std::uint64_t number, std::uint64_t at, std::uint64_t ahead, std::uint64_t bell, std::uint64_t word) {
  Hops hops;
  hops.number = number;
  hops.bytes = 4096;
  hops.begun_ns = at + ahead;
  hops.rung_ns = at + 1000 + ahead;
  hops.seen_ns = at + 1000 + bell;
  hops.carried_ns = hops.seen_ns + 20'000;
  hops.released_ns = hops.carried_ns + word + ahead;
  hops.taken_ns = hops.released_ns + 500;
  return hops;
}

TEST(HopTimeline, FindsTheOffsetOfTheClocksWithinTheShortestHops) {
  constexpr std::uint64_t kAhead = 5'000'000'000;
  const std::vector<Hops> rounds{round_of(1, 100'000, kAhead, 900, 4000), round_of(2, 200'000, kAhead, 2000, 700),
                                 round_of(3, 300'000, kAhead, 3000, 3000)};
  const auto offset = clock_offset(rounds);
  ASSERT_TRUE(offset);
  EXPECT_EQ(offset->within_ns, 800U);  // half of 900 + 700
  EXPECT_NEAR(static_cast<double>(offset->ns), -5e9, 800);
}

TEST(HopTimeline, SaysNothingOfClocksThatContradictEachOther) {
  EXPECT_FALSE(clock_offset({}));
  std::vector<Hops> rounds{round_of(1, 100'000, 0, 900, 900), round_of(2, 200'000, 50'000, 900, 900)};
  EXPECT_FALSE(clock_offset(rounds));
}

TEST(HopTimeline, IsATraceOnTheClockOfTheHost) {
  const std::vector<Hops> rounds{round_of(7, 100'000, 1'000'000, 900, 700)};
  const auto offset = clock_offset(rounds);
  ASSERT_TRUE(offset);
  const auto trace = nlohmann::json::parse(timeline_json({1, 2, 32768, "gpu07"}, 0, rounds, *offset));
  EXPECT_EQ(trace["otherData"]["rank"], 1);
  double last = 0;
  int hops = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++hops;
    EXPECT_EQ(event["args"]["round"], 7);
    EXPECT_GE(event["ts"].get<double>() + 0.002, last) << event;  // each begins where the one before ends
    last = event["ts"].get<double>() + event["dur"].get<double>();
  }
  EXPECT_EQ(hops, 5);
  EXPECT_NEAR(last, 100 + 1 + 0.9 + 20 + 0.7 + 0.5, 0.5);
}

}  // namespace
}  // namespace tensorwire::comm
