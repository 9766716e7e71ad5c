// What a communicator counts and records: the parts alone.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "comm/observe/device_counters.hpp"
#include "comm/observe/flight_record.hpp"
#include "comm/observe/latency_histogram.hpp"
#include "comm/observe/metrics_text.hpp"
#include "comm/observe/operation_statistics.hpp"
#include "comm/observe/output_name.hpp"

namespace tensorwire::comm {
namespace {

using collective::Collective;

Ps nearest_rank(std::vector<Ps> sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

TEST(LatencyHistogram, PercentilesAreWithinThreePercentOfTheExactOnes) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random{seed};
    LatencyHistogram histogram;
    std::vector<Ps> samples;
    const std::size_t count = 1 + random.next() % 3000;
    for (std::size_t i = 0; i < count; ++i) {
      // Every order of magnitude from nanoseconds to a minute.
      const int shift = static_cast<int>(10 + random.next() % 36);
      samples.push_back(static_cast<Ps>(random.next() % (std::uint64_t{1} << shift)) + kNanosecond);
      histogram.add(samples.back());
    }
    std::ranges::sort(samples);
    EXPECT_EQ(histogram.max(), samples.back());
    for (const double share : {0.0, 0.01, 0.5, 0.9, 0.99, 1.0}) {
      const auto exact = static_cast<double>(nearest_rank(samples, share));
      const auto found = static_cast<double>(histogram.percentile(share));
      // Half a bucket's width, and half a unit of 1024 ps where buckets are that small.
      EXPECT_LE(std::abs(found - exact), exact * 0.032 + 1024) << "share " << share << ", seed " << seed;
    }
  }
}

TEST(LatencyHistogram, TheEndsOfTheRange) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.percentile(0.5), 0);
  histogram.add(0);
  histogram.add(-5);
  EXPECT_EQ(histogram.percentile(1), 0);
  histogram.add(3 * 3600 * kSecond);  // beyond the last bucket: counted there, and exactly in max and total
  EXPECT_EQ(histogram.max(), 3 * 3600 * kSecond);
  EXPECT_EQ(histogram.total(), 3 * 3600 * kSecond);
  EXPECT_GT(histogram.percentile(1), 600 * kSecond);
}

TEST(SizeClass, EachIsUpToAPowerOfTwo) {
  EXPECT_EQ(size_class(0), 0U);
  EXPECT_EQ(size_class(64), 0U);
  EXPECT_EQ(size_class(65), 1U);
  for (std::size_t i = 0; i < kSizeClasses; ++i) {
    EXPECT_EQ(size_class(kSmallestSizeClass << i), i);
    EXPECT_EQ(size_class((kSmallestSizeClass << i) + 1), std::min(i + 1, kSizeClasses - 1));
  }
  EXPECT_EQ(size_class(~std::uint64_t{0}), kSizeClasses - 1);
}

TEST(OperationStatistics, CountsByCollectiveAndSize) {
  OperationStatistics statistics;
  EXPECT_TRUE(statistics.read().empty());
  for (int i = 0; i < 100; ++i) statistics.add(Collective::kAllReduce, 4096, 10 * kMicrosecond);
  statistics.add(Collective::kAllReduce, 5000, kMillisecond);
  statistics.add(Collective::kBarrier, 0, kMicrosecond);
  const auto sizes = statistics.read();
  ASSERT_EQ(sizes.size(), 3U);
  EXPECT_EQ(sizes[0].up_to_bytes, 4096U);
  EXPECT_EQ(sizes[0].operations, 100U);
  EXPECT_EQ(sizes[0].bytes, 409'600U);
  EXPECT_NEAR(static_cast<double>(sizes[0].p50), 10e6, 0.32e6);
  EXPECT_EQ(sizes[0].total, kMillisecond);
  EXPECT_EQ(sizes[1].up_to_bytes, 8192U);
  EXPECT_EQ(sizes[2].collective, Collective::kBarrier);
}

TEST(OperationStatistics, AnotherThreadMayReadWhileOneCounts) {
  OperationStatistics statistics;
  std::thread counter{[&] {
    for (int i = 0; i < 100'000; ++i) statistics.add(Collective::kAllReduce, 4096, i * kNanosecond);
  }};
  std::uint64_t last = 0;
  while (last != 100'000) {
    const auto sizes = statistics.read();
    const std::uint64_t now = sizes.empty() ? 0 : sizes[0].operations;
    ASSERT_GE(now, last);
    last = now;
  }
  counter.join();
}

TEST(OutputName, HoldsTheRank) {
  const Identity third{3, 8, 0, "host"};
  EXPECT_EQ(output_name("trace.json", third), "trace.rank3.json");
  EXPECT_EQ(output_name("/a.b/trace", third), "/a.b/trace.rank3");
  EXPECT_EQ(output_name(".hidden", third), ".hidden.rank3");
  EXPECT_EQ(output_name("t%r.json", third), "t3.json");
  EXPECT_EQ(output_name("100%%r%x", third), "100%3%x");
  const Identity of_second{3, 8, 2, "host"};
  EXPECT_EQ(output_name("trace.json", of_second), "trace.rank3.comm2.json");
  EXPECT_EQ(output_name("t%r-%c.json", of_second), "t3-2.json");
  EXPECT_EQ(output_name("%p", of_second), std::to_string(getpid()) + ".comm2");
}

std::size_t lines_of(const std::string& text) { return static_cast<std::size_t>(std::ranges::count(text, '\n')); }

TEST(FlightRecord, KeepsTheLastSixtyFourOperations) {
  auto record = std::make_unique<FlightRecord>();
  const Identity who{1, 4, 0, "host \"a\""};
  for (std::uint64_t i = 0; i < 100; ++i) {
    const collective::Shape shape{.ranks = 4, .count = 10 + i, .dtype = collective::DType::kFloat16};
    const std::uint64_t ordinal = record->begin(info_of(i, shape, collective::Algorithm::kTwoShot), kMicrosecond);
    if (i != 99) record->end(ordinal, 3 * kMicrosecond, i == 98 ? kMicrosecond : 0, 2);
  }
  const std::string text = record->to_json_lines(who, {"it broke", 2, 3, "to send its part"}, 10 * kMicrosecond);
  EXPECT_EQ(lines_of(text), 1 + FlightRecord::kOperations);
  EXPECT_NE(text.find(R"("host":"host \"a\"")"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("rank_to_blame":2,"waiting_for":3,"waiting_for_what":"to send its part")"), std::string::npos);
  EXPECT_EQ(text.find(R"("operation":35,)"), std::string::npos);
  EXPECT_NE(text.find(R"({"operation":36,"collective":"all-reduce","algorithm":"two-shot","count":46,"dtype":"fp16",)"
                      R"("op":"sum","bytes":92,"state":"done","began_us_ago":9.000,"took_us":2.000})"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(R"("waited_us":1.000,"waited_for":2})"), std::string::npos);
  EXPECT_NE(text.find(R"("operation":99,"collective":"all-reduce","algorithm":"two-shot","count":109,"dtype":"fp16",)"
                      R"("op":"sum","bytes":218,"state":"failed","began_us_ago":9.000,"took_us":9.000})"),
            std::string::npos);
}

TEST(FlightRecord, WithoutOperationsItIsTheFailureAlone) {
  const auto record = std::make_unique<FlightRecord>();
  const std::string text = record->to_json_lines({0, 2, 0, "h"}, {"early", -1, 2, "nothing"}, 0);
  EXPECT_EQ(lines_of(text), 1U);
  EXPECT_EQ(text.find("rank_to_blame"), std::string::npos);
  EXPECT_EQ(text.find("waiting_for"), std::string::npos);
}

TEST(Retransmissions, ArePacketsWhereTheDeviceCountsThemElseEvents) {
  EXPECT_EQ(retransmissions({{"local_ack_timeout_err", 2}, {"packet_seq_err", 3}, {"out_of_sequence", 9}}), 5U);
  EXPECT_EQ(retransmissions({{"local_ack_timeout_err", 2}, {"retransmitted_packets", 40}}), 40U);
  EXPECT_EQ(retransmissions({}), 0U);
}

TEST(MetricsText, SaysTheStragglerAndTheFailure) {
  MetricsSnapshot snapshot;
  snapshot.straggler = 3;
  snapshot.failed = true;
  snapshot.running_since_ago = 2 * kSecond;
  snapshot.peers.push_back({3, "a \"path\"", {1, 2, 3, 4}, 1500 * kMillisecond});
  const std::string text = metrics_text({1, 4, 7, "h"}, snapshot);
  EXPECT_NE(text.find("tensorwire_waiting_for_peer{rank=\"1\",communicator=\"7\",peer=\"3\"} 1\n"), std::string::npos);
  EXPECT_NE(text.find("tensorwire_failed{rank=\"1\",communicator=\"7\"} 1\n"), std::string::npos);
  EXPECT_NE(text.find("tensorwire_operation_running_seconds{rank=\"1\",communicator=\"7\"} 2\n"), std::string::npos);
  EXPECT_NE(text.find("tensorwire_peer_waited_seconds_total{rank=\"1\",communicator=\"7\",peer=\"3\","
                      "path=\"a \\\"path\\\"\"} 1.5\n"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace tensorwire::comm
