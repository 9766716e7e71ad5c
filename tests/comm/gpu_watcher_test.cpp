// What runs on a GPU, in traces and flight records. The GPU is a journal in memory that grows as one on a GPU does.
#include "comm/observe/gpu_watcher.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "comm/observe/published.hpp"
#include "comm/observe/trace_json.hpp"

namespace tensorwire::comm {
namespace {

using Json = nlohmann::json;
using cuda::OperationKind;

constexpr std::uint64_t kGpuBootNs = 77'000'000'000;

/// By a clock that shows kGpuBootNs when the host's shows 0.
class MemoryJournal {
 public:
  void begin(std::uint64_t at_us) {
    const std::scoped_lock lock{mutex_};
    cuda::JournalEntry entry;
    entry.number = ++journal_.operations;
    entry.what = cuda::packed_what({OperationKind::kAllReduce, 3, 4096, 1, 0}, entry.number);
    entry.bytes = 4096;
    entry.begun_ns = kGpuBootNs + at_us * 1000;
    journal_.entries.push_back(entry);
    if (journal_.entries.size() > 4) journal_.entries.erase(journal_.entries.begin());
  }
  void end(std::uint64_t at_us, std::uint32_t waited_ns) {
    const std::scoped_lock lock{mutex_};
    journal_.entries.back().ended_ns = kGpuBootNs + at_us * 1000;
    journal_.entries.back().waited_ns[1] = waited_ns;
  }
  cuda::Communicator::Journal read() {
    const std::scoped_lock lock{mutex_};
    journal_.clock = cuda::ClockReading{kGpuBootNs + 500, 500 * kNanosecond, 2 * kMicrosecond};
    return journal_;
  }

 private:
  std::mutex mutex_;
  cuda::Communicator::Journal journal_;
};

TEST(GpuLog, KeepsOperationsOnTheHostsClockAndCountsWhatItMissed) {
  MemoryJournal gpu;
  GpuLog log{8};
  gpu.begin(10);
  log.add(gpu.read());
  ASSERT_EQ(log.operations().size(), 1U);
  EXPECT_EQ(log.operations()[0].begun, 10 * kMicrosecond);
  EXPECT_EQ(log.operations()[0].ended, 0);
  gpu.end(14, 2500);
  log.add(gpu.read());
  EXPECT_EQ(log.operations()[0].ended, 14 * kMicrosecond);
  for (std::uint64_t i = 0; i < 6; ++i) {
    gpu.begin(20 + 10 * i);
    gpu.end(25 + 10 * i, 0);
  }
  log.add(gpu.read());  // 2 and 3 were overwritten
  EXPECT_EQ(log.dropped(), 2U);
  EXPECT_EQ(log.operations().size(), 5U);
  for (std::uint64_t i = 0; i < 4; ++i) gpu.begin(100 + i);
  log.add(gpu.read());
  EXPECT_EQ(log.dropped(), 3U);
  EXPECT_EQ(log.operations().size(), 8U);
  EXPECT_EQ(log.operations().back().entry.number, 11U);

  cuda::Communicator::Journal without_clock = gpu.read();
  without_clock.clock.reset();
  GpuLog later{8};
  later.add(without_clock);
  EXPECT_TRUE(later.operations().empty());
  EXPECT_EQ(later.dropped(), 0U);
}

TEST(GpuLog, IsATrackOfTheTrace) {
  MemoryJournal gpu;
  gpu.begin(10);
  gpu.end(14, 2500);
  gpu.begin(20);
  GpuLog log{8};
  log.add(gpu.read());
  const TraceRecorder recorder{{0, 2, 0, "h"}, 4};
  const Json trace = Json::parse(trace_json(recorder, &log));
  EXPECT_EQ(trace["otherData"]["gpu_operations_dropped"], 0);
  EXPECT_DOUBLE_EQ(trace["otherData"]["gpu_clock_error_us"], 2.0);
  std::vector<Json> slices;
  for (const Json& event : trace["traceEvents"]) {
    if (event.value("cat", "") == "gpu operation") slices.push_back(event);
  }
  ASSERT_EQ(slices.size(), 2U);
  EXPECT_EQ(slices[0]["name"], "all-reduce 4KiB");
  EXPECT_DOUBLE_EQ(slices[0]["ts"], 10);
  EXPECT_DOUBLE_EQ(slices[0]["dur"], 4);
  EXPECT_EQ(slices[0]["args"]["dtype"], "bf16");
  EXPECT_EQ(slices[0]["args"]["op"], "sum");
  EXPECT_DOUBLE_EQ(slices[0]["args"]["waited_us"]["1"], 2.5);
  EXPECT_EQ(slices[1]["args"]["state"], "not over");
  EXPECT_NE(slices[0]["tid"], 1);
  EXPECT_FALSE(Json::parse(trace_json(recorder))["otherData"].contains("gpu_clock_error_us"));
}

TEST(GpuLog, StandsInFlightRecords) {
  MemoryJournal gpu;
  GpuLog log{100};
  for (std::uint64_t i = 0; i < 70; ++i) {
    gpu.begin(10 * i);
    gpu.end(10 * i + 3, 0);
    log.add(gpu.read());
  }
  gpu.begin(700);
  log.add(gpu.read());
  std::istringstream lines{flight_lines(log, FlightRecord::kOperations, 1000 * kMicrosecond)};
  std::vector<Json> read;
  for (std::string line; std::getline(lines, line);) read.push_back(Json::parse(line));
  ASSERT_EQ(read.size(), FlightRecord::kOperations);
  EXPECT_EQ(read.front()["gpu_operation"], 8);
  EXPECT_EQ(read.front()["state"], "done");
  EXPECT_DOUBLE_EQ(read.front()["took_us"], 3);
  EXPECT_EQ(read.back()["gpu_operation"], 71);
  EXPECT_EQ(read.back()["state"], "not over");
  EXPECT_DOUBLE_EQ(read.back()["began_us_ago"], 300);
}

TEST(GpuWatcher, ReadsWhatWouldBeOverwrittenAndTellsOfAFailureOnce) {
  MemoryJournal gpu;
  std::atomic<bool> broken{false};
  std::atomic<int> told{0};
  GpuWatcher watcher{{[&] { return gpu.read(); },
                      [&]() -> std::optional<FailureNote> {
                        if (!broken) return std::nullopt;
                        return FailureNote{"it broke", 1, 2, "nothing"};
                      }},
                     1000,
                     [&](const FailureNote& note) {
                       EXPECT_EQ(note.line, "it broke");
                       ++told;
                     }};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (std::uint64_t i = 0; i < 12; ++i) {
    gpu.begin(10 * i);
    gpu.end(10 * i + 1, 0);
    // The journal holds four: nobody but the watcher's thread reads them in time.
    if (i % 3 == 2) std::this_thread::sleep_for(std::chrono::milliseconds(60));
  }
  broken = true;
  while (told == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_EQ(told, 1);
  gpu.begin(200);
  watcher.stop();
  const GpuLog log = watcher.read();
  EXPECT_EQ(log.operations().size() + log.dropped(), 13U);
  EXPECT_GT(log.operations().size(), 4U);
  gpu.begin(210);  // after stop() nobody asks
  EXPECT_EQ(watcher.read().operations().back().entry.number, 13U);
  EXPECT_EQ(told, 1);
}

TEST(Published, IsReadWholeOrNotAtAll) {
  struct Pair {
    std::uint64_t one, half_of_it;
    std::uint32_t again;
  };
  Published<Pair> published;
  EXPECT_FALSE(published.load());
  std::atomic<bool> over{false};
  std::thread writer{[&] {
    for (std::uint32_t i = 1; i <= 200'000; ++i) published.store({2 * std::uint64_t{i}, i, i});
    over = true;
  }};
  while (!over) {
    const auto pair = published.load();
    if (!pair) continue;
    EXPECT_EQ(pair->one, 2 * pair->half_of_it);
    EXPECT_EQ(pair->again, pair->half_of_it);
  }
  writer.join();
  EXPECT_EQ(published.load()->again, 200'000U);
}

}  // namespace
}  // namespace tensorwire::comm
