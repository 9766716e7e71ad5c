// A rank that is not there: every wait ends within its bound, the first error stays, and it names who is missing.
#include <atomic>
#include <chrono>
#include <thread>

#include "gpu/ranks.hpp"

namespace tensorwire::test {
namespace {

using collective::DType;
using collective::Op;

constexpr Ps kBound = 300 * kMillisecond;

cuda::CommunicatorOptions options() {
  cuda::CommunicatorOptions options;
  options.operation_bound = kBound;
  return options;
}

class Stopwatch {
 public:
  [[nodiscard]] Ps elapsed() const {
    return (std::chrono::steady_clock::now() - began_) / std::chrono::nanoseconds(1) * kNanosecond;
  }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

cuda::Status reduce(Rank& rank, const DeviceBytes& memory, std::size_t count) {
  return rank.communicator.all_reduce(memory.data(), memory.data(), count, DType::kBfloat16, Op::kSum, rank.stream);
}

class AbsentRank : public ::testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

TEST_P(AbsentRank, IsNamedWithinTheBoundAndTheErrorStays) {
  as_ranks(2, options(), [](Rank& rank) {
    const DeviceBytes memory(GetParam() * 2);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    expect_ok(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal), "begin capture");
    for (int i = 0; i < 160; ++i) EXPECT_EQ(reduce(rank, memory, GetParam()), cuda::Status::kOk);
    expect_ok(cudaStreamEndCapture(rank.stream, &graph), "end capture");
    expect_ok(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
    rank.crossing.wait();
    EXPECT_EQ(reduce(rank, memory, GetParam()), cuda::Status::kOk);
    rank.synchronize();
    if (rank.rank == 0) {
      // Rank 1 calls nothing more. A replay of 160 operations ends within one bound.
      const Stopwatch watch;
      expect_ok(cudaGraphLaunch(executable, rank.stream), "launch");
      rank.synchronize();
      EXPECT_GE(watch.elapsed(), kBound);
      EXPECT_LT(watch.elapsed(), kBound + 200 * kMillisecond);
      const auto failure = rank.communicator.failure();
      ASSERT_TRUE(failure.has_value());
      EXPECT_EQ(failure->kind, cuda::FailureKind::kTimeout);
      EXPECT_EQ(failure->peer, 1);
      EXPECT_EQ(failure->reporter, 0);
      EXPECT_NE(rank.communicator.failure_text().find("for rank 1"), std::string::npos);
      EXPECT_EQ(reduce(rank, memory, GetParam()), cuda::Status::kFailed);
      const Stopwatch again;
      expect_ok(cudaGraphLaunch(executable, rank.stream), "launch");
      rank.synchronize();
      EXPECT_LT(again.elapsed(), kBound / 2);
    }
    rank.crossing.wait();
    if (rank.rank == 1) {
      // Comes back late, and hears at once that the other gave up.
      const Stopwatch watch;
      expect_ok(cudaGraphLaunch(executable, rank.stream), "launch");
      rank.synchronize();
      EXPECT_LT(watch.elapsed(), kBound / 2);
      const auto failure = rank.communicator.failure();
      ASSERT_TRUE(failure.has_value());
      EXPECT_EQ(failure->reporter, 0);
      EXPECT_EQ(failure->peer, 1);
    }
    rank.crossing.wait();
    expect_ok(cudaGraphExecDestroy(executable), "destroy");
    expect_ok(cudaGraphDestroy(graph), "destroy");
  });
}

TEST_P(AbsentRank, AnAbortEndsAWaitAtOnce) {
  cuda::CommunicatorOptions patient;
  patient.operation_bound = 30 * kSecond;
  as_ranks(2, patient, [](Rank& rank) {
    const DeviceBytes memory(GetParam() * 2);
    rank.crossing.wait();
    if (rank.rank == 0) {
      EXPECT_EQ(reduce(rank, memory, GetParam()), cuda::Status::kOk);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const Stopwatch watch;
      rank.communicator.abort(1);
      rank.synchronize();
      EXPECT_LT(watch.elapsed(), 20 * kMillisecond);
      EXPECT_EQ(rank.communicator.failure()->kind, cuda::FailureKind::kAborted);
      EXPECT_EQ(rank.communicator.failure()->peer, 1);
      EXPECT_EQ(reduce(rank, memory, GetParam()), cuda::Status::kFailed);
    }
    rank.crossing.wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Elements, AbsentRank, ::testing::Values(5, 4096, 4'000'000));

/// One rank that cannot take part fails all, with its line.
TEST(SetUp, FailsOnAllRanksWhenOneHasOtherOptions) {
  SKIP_WITHOUT_GPU();
  Crossing crossing(2);
  std::atomic<int> told = 0;
  const auto join = [&](int rank) {
    cuda::CommunicatorOptions mine;
    mine.rank = rank;
    mine.ranks = 2;
    mine.device = rank % gpu_count();
    mine.slot_bytes = rank == 0 ? 32768 : 16384;
    mine.exchange = [&](std::span<const std::byte> bytes) { return crossing.exchange(rank, bytes); };
    try {
      const cuda::Communicator communicator(mine);
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
      ++told;
    }
  };
  std::thread other(join, 1);
  join(0);
  other.join();
  EXPECT_EQ(told, 2);
}

}  // namespace
}  // namespace tensorwire::test
