// What replays leave in traces and flight records, by the C API: on the host's clock, with waits by peer.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "gpu/api_ranks.hpp"
#include "gpu/delay.hpp"

namespace tensorwire::test {
namespace {

using Json = nlohmann::json;

class Observed : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_GPU();
    std::string made = std::filesystem::temp_directory_path() / "tw_observed.XXXXXX";
    ASSERT_NE(::mkdtemp(made.data()), nullptr);
    folder_ = made;
    ::setenv("TENSORWIRE_PATH", "peer", 1);
  }
  void TearDown() override {
    for (const char* name : {"TENSORWIRE_PATH", "TENSORWIRE_TRACE", "TENSORWIRE_FLIGHT_RECORD"}) ::unsetenv(name);
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }

  std::filesystem::path folder_;
};

/// What takes part: memory, and a graph of four all-reduces.
constexpr int kObservedPerGraph = 4;
constexpr std::size_t kObservedCount = 100'000;
void capture_observed(ApiRank& rank, const DeviceBytes& memory) {
  ASSERT_EQ(twCommInitGpu(rank.comm, rank.device), twSuccess) << rank.line();
  rank.crossing.wait();
  rank.capture(cudaStreamCaptureModeThreadLocal, [&] {
    for (int i = 0; i < kObservedPerGraph; ++i) {
      const auto result =
          twAllReduce(memory.data(), memory.data(), kObservedCount, twBfloat16, twSum, rank.comm, rank.stream);
      if (result != twSuccess) return result;
    }
    return twSuccess;
  });
  rank.crossing.wait();
}

TEST_F(Observed, ReplaysAreATrackOfTheTrace) {
  constexpr int kReplays = 20;
  constexpr std::uint64_t kLateByNs = 5'000'000;
  ::setenv("TENSORWIRE_TRACE", (folder_ / "trace.%r.json").c_str(), 1);
  const Ps began = monotonic_now();
  as_api_ranks(2, [](ApiRank& rank) {
    const DeviceBytes memory(kObservedCount * 2);
    capture_observed(rank, memory);
    for (int i = 0; i < kReplays; ++i) {
      if (rank.rank == 1 && i == kReplays / 2) delay(kLateByNs, rank.stream);
      rank.replay();
    }
    rank.synchronize();
  });
  const Ps ended = monotonic_now();
  for (int rank = 0; rank < 2; ++rank) {
    std::ifstream file(folder_ / ("trace." + std::to_string(rank) + ".json"));
    const Json trace = Json::parse(file);
    EXPECT_LT(trace["otherData"]["gpu_clock_error_us"].get<double>(), 100);
    const auto missed = trace["otherData"]["gpu_operations_dropped"].get<int>();
    int seen = 0, waited_long = 0;
    double first = -1, last = 0;
    for (const Json& event : trace["traceEvents"]) {
      if (event.value("cat", "") != "gpu operation") continue;
      ++seen;
      EXPECT_EQ(event["name"], "all-reduce 200000B") << event;
      EXPECT_EQ(event["args"]["state"], "done");
      const double from = event["ts"].get<double>(), took = event["dur"].get<double>();
      if (first < 0) first = from;
      EXPECT_GE(from, last);
      // The library's clock began when it was first asked, not when this program's did.
      EXPECT_GT(from, 0);
      EXPECT_LT(from + took - first, static_cast<double>((ended - began) / kMicrosecond));
      last = from;
      const Json waited = event["args"].value("waited_us", Json::object());
      const double of_peer = waited.value(std::to_string(1 - rank), 0.0);
      EXPECT_LE(of_peer, took + 1);
      if (of_peer > kLateByNs / 2000.0) ++waited_long;
    }
    EXPECT_EQ(seen + missed, kReplays * kObservedPerGraph);
    if (rank == 0) {
      EXPECT_GE(waited_long, 1);
    }
  }
}

TEST_F(Observed, AFailureInAReplayWritesAFlightRecord) {
  ::setenv("TENSORWIRE_FLIGHT_RECORD", folder_.c_str(), 1);
  twConfig_t config TW_CONFIG_INITIALIZER;
  config.operationTimeoutMs = 1000;
  as_api_ranks(
      2,
      [](ApiRank& rank) {
        const DeviceBytes memory(kObservedCount * 2);
        capture_observed(rank, memory);
        rank.replay();
        rank.synchronize();
        rank.crossing.wait();
        if (rank.rank == 0) rank.replay();  // rank 1 comes no more
        rank.synchronize();
        twResult_t state = twSuccess;
        // Rank 1 waits for nothing, and hears of it with its next operation.
        const Ps until = monotonic_now() + (rank.rank == 0 ? 10 : 2) * kSecond;
        while (state == twSuccess && monotonic_now() < until) {
          ASSERT_EQ(twCommGetAsyncError(rank.comm, &state), twSuccess);
        }
        if (rank.rank == 0) {
          EXPECT_NE(state, twSuccess);
        }
        rank.crossing.wait();
      },
      config);
  int of_rank_0 = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().filename().string().find(".rank0.") == std::string::npos) continue;
    std::ifstream file(entry.path());
    std::string line;
    ASSERT_TRUE(std::getline(file, line));
    EXPECT_NE(Json::parse(line)["error"].get<std::string>().find("waited"), std::string::npos) << line;
    Json last;
    for (; std::getline(file, line); ++of_rank_0) last = Json::parse(line);
    EXPECT_EQ(last.value("gpu_operation", 0), kObservedPerGraph + 1);
    EXPECT_EQ(last.value("state", ""), "not over");
  }
  EXPECT_GE(of_rank_0, kObservedPerGraph + 1);
}

}  // namespace
}  // namespace tensorwire::test
