#include "cli/bench/statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace tensorwire::cli {
namespace {

TEST(Statistics, PercentilesAreNearestRank) {
  std::vector<Ps> samples(200);
  std::iota(samples.begin(), samples.end(), 1);
  std::reverse(samples.begin(), samples.end());
  const LatencySummary summary = summarise(samples);
  EXPECT_EQ(summary.p50, 100);
  EXPECT_EQ(summary.p99, 198);
  EXPECT_EQ(summary.max, 200);
  EXPECT_EQ(summary.mean, 100);
}

TEST(Statistics, OneSampleIsEveryPercentile) {
  const LatencySummary summary = summarise({7});
  EXPECT_EQ(summary.p50, 7);
  EXPECT_EQ(summary.p99, 7);
  EXPECT_EQ(summary.max, 7);
}

TEST(Statistics, NoSamplesAreZero) { EXPECT_EQ(summarise({}).max, 0); }

TEST(Statistics, TheSlowestRankCounts) {
  const std::vector<std::vector<Ps>> by_rank{{1, 9, 3}, {4, 2, 3}};
  EXPECT_EQ(slowest_rank(by_rank), (std::vector<Ps>{4, 9, 3}));
}

TEST(Statistics, AnIterationThatOneRankCannotCountCountsForNone) {
  const std::vector<std::vector<Ps>> by_rank{{1, 9, 3}, {4, kNoSample, 3}};
  EXPECT_EQ(slowest_rank(by_rank), (std::vector<Ps>{4, 3}));
}

}  // namespace
}  // namespace tensorwire::cli
