// Traces with clocks that are known to be apart come out on one clock.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "base/error.hpp"
#include "base/random.hpp"
#include "cli/trace/merge.hpp"

namespace tensorwire::cli {
namespace {

using nlohmann::json;

RankTrace empty_trace(std::uint32_t rank, double realtime = 0) {
  return {fmt::format("rank{}", rank),
          {{"otherData",
            {{"producer", "tensorwire"}, {"rank", rank}, {"communicator", 0U}, {"clock_realtime_us", realtime}}},
           {"traceEvents", json::array()}}};
}

json event(const char* phase, double at, const std::string& id) {
  return {{"ph", phase}, {"pid", 99}, {"tid", 1}, {"ts", at}, {"id", id}, {"name", "message"}};
}

/// Traces of ranks whose clocks show `ahead` microseconds more than the true time, with messages both ways between
/// neighbours. Each takes `least` to `least + 50` microseconds.
std::vector<RankTrace> traces_of(const std::vector<double>& ahead, double least, std::uint64_t seed) {
  Random random{seed};
  std::vector<RankTrace> traces;
  for (std::uint32_t rank = 0; rank < ahead.size(); ++rank) traces.push_back(empty_trace(rank));
  double now = 1000;
  for (int i = 0; i < 200; ++i) {
    for (std::size_t a = 0; a + 1 < ahead.size(); ++a) {
      for (const auto& [from, to] : {std::pair{a, a + 1}, std::pair{a + 1, a}}) {
        now += 10;
        const double took = least + static_cast<double>(random.next() % 50'000) / 1000;
        const std::string id = fmt::format("0.{}>{}.{}.0", from, to, i);
        traces[from].content["traceEvents"].push_back(event("s", now + ahead[from], id));
        traces[to].content["traceEvents"].push_back(event("f", now + took + ahead[to], id));
      }
    }
  }
  return traces;
}

TEST(TraceMerge, ClocksThatAreApartComeTogether) {
  const std::vector<double> ahead = {0, 5e6, -123.25, 7e9};
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const MergedTrace merged = merge_traces(traces_of(ahead, 3, seed));
    EXPECT_EQ(merged.messages, 200U * 6);
    for (std::size_t rank = 0; rank < ahead.size(); ++rank) {
      const ClockAlignment& clock = merged.clocks[rank];
      EXPECT_TRUE(clock.by_messages);
      EXPECT_LE(std::abs(clock.offset_us + ahead[rank]), clock.within_us + 1e-3) << "rank " << rank;
      EXPECT_LT(clock.within_us, 3 * 10 + 1e-3);
      EXPECT_LT(std::abs(clock.offset_us + ahead[rank]), 2);
    }
    // No message arrives before it was sent.
    std::map<std::string, double> sent;
    for (const json& one : merged.content["traceEvents"]) {
      if (one["ph"] == "s") sent[one["id"]] = one["ts"];
    }
    for (const json& one : merged.content["traceEvents"]) {
      if (one["ph"] != "f") continue;
      EXPECT_GE(one["ts"].get<double>(), sent.at(one["id"]) - 1e-3);
    }
  }
}

TEST(TraceMerge, WithoutMessagesBothWaysTheSystemsClockHasToDo) {
  auto traces = traces_of({0, 10}, 1, 1);
  traces.push_back(empty_trace(2, 4711));
  traces[2].content["traceEvents"].push_back(event("f", 5, "0.0>2.0.0"));
  traces[0].content["traceEvents"].push_back(event("s", 5, "0.0>2.0.0"));
  const MergedTrace merged = merge_traces(std::move(traces));
  EXPECT_TRUE(merged.clocks[1].by_messages);
  EXPECT_FALSE(merged.clocks[2].by_messages);
  EXPECT_EQ(merged.clocks[2].offset_us, 4711);
}

TEST(TraceMerge, EveryRankIsAProcessOfItsOwn) {
  const MergedTrace merged = merge_traces(traces_of({0, 10}, 1, 1));
  for (const json& one : merged.content["traceEvents"]) EXPECT_LT(one["pid"].get<int>(), 2);
}

TEST(TraceMerge, TheSameRankTwiceIsRefused) {
  std::vector<RankTrace> traces = {empty_trace(1), empty_trace(1)};
  EXPECT_THROW((void)merge_traces(std::move(traces)), Error);
}

TEST(TraceMerge, WhatIsNoTraceIsRefused) {
  const std::string path = fmt::format("{}/no_trace.{}.json", testing::TempDir(), getpid());
  const std::string other =
      R"("otherData":{"producer":"tensorwire","rank":0,"communicator":0,"clock_realtime_us":1.5})";
  const auto reads = [&](const std::string& text) {
    std::ofstream{path} << text;
    try {
      (void)read_rank_trace(path);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  EXPECT_TRUE(reads("{" + other + R"(,"traceEvents":[]})"));
  for (const std::string& text :
       {std::string{}, std::string{"[]"}, std::string{"{"}, "{" + other + "}",
        std::string{R"({"otherData":{"producer":"x"},"traceEvents":[]})"},
        std::string{R"({"otherData":[],"traceEvents":[]})"}, "{" + other + R"(,"traceEvents":[1]})",
        "{" + other + R"(,"traceEvents":[{"ts":""}]})", "{" + other + R"(,"traceEvents":[{"ph":1}]})"}) {
    EXPECT_FALSE(reads(text)) << text;
  }
  unlink(path.c_str());
  EXPECT_THROW((void)read_rank_trace(path), Error);
}

}  // namespace
}  // namespace tensorwire::cli
