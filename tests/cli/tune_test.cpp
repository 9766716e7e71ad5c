// Fitting, and the file that it is kept in.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "cli/tune_fit.hpp"
#include "comm/tuning.hpp"

namespace tensorwire::cli {
namespace {

using collective::Algorithm;
using collective::FabricCost;

constexpr std::uint64_t kSlot = 256 << 10;

std::vector<Timed> times_of(const FabricCost& cost, std::uint32_t ranks) {
  std::vector<Timed> times;
  for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kTwoShot}) {
    for (std::uint64_t bytes = 256; bytes <= 1 << 20; bytes *= 4) {
      Timed timed{algorithm, bytes, 0, false};
      timed.us = predicted_us(timed, ranks, cost, kSlot, 2);
      times.push_back(timed);
    }
  }
  return times;
}

TEST(TuneFit, FindsTheParametersThatMadeTheTimes) {
  FabricCost truth;
  truth.hop_us = 17;
  truth.message_us = 0.8;
  truth.arrival_us = 1.5;
  truth.wire_bytes_per_us = 3100;
  FabricCost start;
  start.message_us = start.arrival_us = 0.5;
  const FabricCost found = fit(times_of(truth, 4), 4, start, kSlot, 2);
  EXPECT_NEAR(found.wire_bytes_per_us, truth.wire_bytes_per_us, truth.wire_bytes_per_us * 0.1);
  for (const Timed& timed : times_of(truth, 4)) {
    EXPECT_NEAR(predicted_us(timed, 4, found, kSlot, 2), timed.us, timed.us * 0.1) << timed.bytes;
  }
}

/// One-shot and two-shot of little take nearly the same: it is not the hops that cost.
TEST(TuneFit, TellsTheStartFromTheHops) {
  FabricCost truth;
  truth.start_us = 90;
  truth.hop_us = 8;
  truth.wire_bytes_per_us = 900;
  const FabricCost found = fit(times_of(truth, 2), 2, FabricCost{}, kSlot, 2);
  EXPECT_NEAR(found.start_us, truth.start_us, truth.start_us * 0.15);
  for (const Timed& timed : times_of(truth, 2)) {
    EXPECT_NEAR(predicted_us(timed, 2, found, kSlot, 2), timed.us, timed.us * 0.1) << timed.bytes;
  }
}

/// A fifth of the times are of a moment in which something else ran.
TEST(TuneFit, DisturbedTimesDoNotMoveTheOthers) {
  FabricCost truth;
  truth.hop_us = 20;
  truth.wire_bytes_per_us = 2000;
  std::vector<Timed> times = times_of(truth, 2);
  for (std::size_t i = 2; i < times.size(); i += 5) times[i].us *= 10;
  const FabricCost found = fit(times, 2, FabricCost{}, kSlot, 2);
  for (const Timed& timed : times_of(truth, 2)) {
    EXPECT_NEAR(predicted_us(timed, 2, found, kSlot, 2), timed.us, timed.us * 0.2) << timed.bytes;
  }
}

TEST(TuneFit, OneBadTimeDoesNotMoveTheThreshold) {
  std::vector<Timed> times;
  for (const std::uint64_t bytes : {1024, 2048, 4096, 8192, 16384}) {
    times.push_back({Algorithm::kOneShot, bytes, static_cast<double>(bytes) / 100, false});
    times.push_back({Algorithm::kTwoShot, bytes, 45, false});
  }
  EXPECT_EQ(one_shot_threshold(times), 4096U);
  times[0].us = 50;
  EXPECT_EQ(one_shot_threshold(times), 4096U);
  EXPECT_EQ(one_shot_threshold({}), 0U);
}

class TuneFile : public testing::Test {
 protected:
  void SetUp() override {
    folder = std::filesystem::temp_directory_path() / ("tensorwire-tune-" + std::to_string(getpid()));
    std::filesystem::remove_all(folder);
    file = (folder / "deep" / "tune.toml").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::filesystem::path folder;
  std::string file;
};

TEST_F(TuneFile, KeepsOneEntryForEachTopology) {
  EXPECT_FALSE(comm::load_tuning(file, "any")) << "no file yet";
  comm::Tuning tuning;
  tuning.ranks = 4;
  tuning.cost.hop_us = 12.5;
  tuning.cost.start_us = 7.5;
  tuning.thresholds.one_shot_bytes = 4096;
  comm::save_tuning(file, "four", tuning);
  tuning.ranks = 2;
  tuning.thresholds.one_shot_bytes_pair = 1024;
  comm::save_tuning(file, "two", tuning);
  const auto four = comm::load_tuning(file, "four");
  ASSERT_TRUE(four);
  EXPECT_EQ(four->cost.hop_us, 12.5);
  EXPECT_EQ(four->cost.start_us, 7.5);
  EXPECT_EQ(four->thresholds.one_shot_bytes, 4096U);
  EXPECT_EQ(four->thresholds.one_shot_bytes_pair, collective::Thresholds{}.one_shot_bytes_pair) << "not of four ranks";
  const auto two = comm::find_tuning(file, 2);
  ASSERT_TRUE(two);
  EXPECT_EQ(two->first, "two");
  EXPECT_EQ(two->second.thresholds.one_shot_bytes_pair, 1024U);
  EXPECT_FALSE(comm::find_tuning(file, 3));
}

TEST_F(TuneFile, SaysWhatIsWrongWithIt) {
  comm::save_tuning(file, "four", {});
  std::ofstream{file, std::ios::app} << "[topology.bad]\nhop_us = -1\n";
  EXPECT_TRUE(comm::load_tuning(file, "four"));
  EXPECT_THROW(static_cast<void>(comm::load_tuning(file, "bad")), Error);
  std::ofstream{file, std::ios::app} << "no toml\n";
  EXPECT_THROW(static_cast<void>(comm::load_tuning(file, "four")), Error);
}

TEST(Topology, KeysTellHostsPathsAndRanksApart) {
  const comm::Topology one{{"a", "b"}, {"RoCEv2 packets (asked for)"}};
  EXPECT_TRUE(one.key().starts_with("2-ranks-rocev2-packets-")) << one.key();
  EXPECT_EQ(one.key(), (comm::Topology{{"b", "a"}, {"RoCEv2 packets (on another host)"}}.key()));
  EXPECT_NE(one.key(), (comm::Topology{{"a", "c"}, {"RoCEv2 packets"}}.key()));
  EXPECT_NE(one.key(), (comm::Topology{{"a", "b"}, {"same-host link"}}.key()));
  EXPECT_TRUE((comm::Topology{{"a", "a"}, {"kernel TCP 127.0.0.1:4000"}}.key().starts_with("2-ranks-kernel-tcp-")));
}

}  // namespace
}  // namespace tensorwire::cli
