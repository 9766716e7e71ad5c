// Captured all-reduces: the sequence is the GPU's, so graphs may be replayed in any order, with eager calls between,
// some never, as long as all ranks do alike.
#include <cstring>

#include "base/random.hpp"
#include "gpu/delay.hpp"
#include "gpu/ranks.hpp"

namespace tensorwire::test {
namespace {

using collective::DType;
using collective::Op;

/// An all-reduce with tensors of its own, eager or captured.
class Operation {
 public:
  Operation(Rank& rank, std::uint64_t seed, std::size_t count)
      : rank_(rank),
        count_(count),
        input_(input_of(seed, rank.rank, count, DType::kBfloat16)),
        expected_(expected_of(seed, rank.ranks, count, DType::kBfloat16, Op::kSum)),
        in_(count * 2),
        out_(count * 2) {
    expect_ok(cudaMemcpyAsync(in_.data(), input_.data(), input_.size(), cudaMemcpyHostToDevice, rank.stream), "copy");
    rank.synchronize();
  }
  ~Operation() { forget(); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  void call() {
    EXPECT_EQ(rank_.communicator.all_reduce(in_.data(), out_.data(), count_, DType::kBfloat16, Op::kSum, rank_.stream),
              cuda::Status::kOk);
  }
  void capture(cudaStreamCaptureMode mode, int times = 1) {
    expect_ok(cudaStreamBeginCapture(rank_.stream, mode), "begin capture");
    for (int i = 0; i < times; ++i) call();
    expect_ok(cudaStreamEndCapture(rank_.stream, &graph_), "end capture");
    instantiate();
  }
  void instantiate() {
    if (executable_ != nullptr) expect_ok(cudaGraphExecDestroy(executable_), "destroy");
    expect_ok(cudaGraphInstantiate(&executable_, graph_, 0), "instantiate");
  }
  void replay() { expect_ok(cudaGraphLaunch(executable_, rank_.stream), "launch"); }
  void forget() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    executable_ = nullptr;
    graph_ = nullptr;
  }

  void poison() { expect_ok(cudaMemsetAsync(out_.data(), 0xa5, out_.size(), rank_.stream), "memset"); }
  void check() {
    std::vector<std::byte> got(out_.size());
    rank_.read(got, out_.data());
    ASSERT_EQ(rank_.communicator.failure_text(), "");
    ASSERT_EQ(std::memcmp(got.data(), expected_.data(), got.size()), 0)
        << "rank " << rank_.rank << " of " << rank_.ranks << ", " << count_ << " elements";
  }

 private:
  Rank& rank_;
  std::size_t count_;
  std::vector<std::byte> input_;
  std::vector<std::byte> expected_;
  DeviceBytes in_;
  DeviceBytes out_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

class Graphs : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
  static cuda::CommunicatorOptions options() {
    cuda::CommunicatorOptions options;
    options.operation_bound = 5 * kSecond;
    return options;
  }
};

TEST_P(Graphs, OfFortySizesReplayInRandomOrderBetweenEagerCalls) {
  as_ranks(GetParam(), options(), [](Rank& rank) {
    std::vector<std::unique_ptr<Operation>> operations;
    Random sizes(3);
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      operations.push_back(std::make_unique<Operation>(rank, seed, 1 + sizes.below(seed % 8 == 0 ? 900000 : 40000)));
    }
    Operation eager(rank, 99, 12345);
    rank.crossing.wait();
    for (std::size_t i = 0; i < operations.size(); ++i) {
      operations[i]->capture(i % 2 == 0 ? cudaStreamCaptureModeThreadLocal : cudaStreamCaptureModeRelaxed);
    }
    rank.crossing.wait();
    Random order(5);
    for (int round = 0; round < 300; ++round) {
      Operation& chosen = *operations[order.below(static_cast<std::uint32_t>(operations.size()))];
      const bool late = order.chance(100000);
      const bool and_eager = order.chance(300000);
      const std::uint32_t latecomer = order.below(static_cast<std::uint32_t>(rank.ranks));
      if (late && rank.rank == static_cast<int>(latecomer)) delay(200'000, rank.stream);
      chosen.poison();
      chosen.replay();
      if (and_eager) eager.call();
      chosen.check();
      if (and_eager) eager.check();
      if (HasFatalFailure()) return;
    }
  });
}

TEST_P(Graphs, EightReplaysInFlightWhileOneRankIsLate) {
  as_ranks(GetParam(), options(), [](Rank& rank) {
    Operation small(rank, 1, 4096), large(rank, 2, 700001);
    rank.crossing.wait();
    small.capture(cudaStreamCaptureModeThreadLocal, 20);
    large.capture(cudaStreamCaptureModeThreadLocal, 3);
    rank.crossing.wait();
    for (int round = 0; round < 10; ++round) {
      small.poison();
      large.poison();
      if (rank.rank == round % rank.ranks) delay(static_cast<std::uint64_t>(round) * 500'000, rank.stream);
      for (int i = 0; i < 8; ++i) (i % 3 == 2 ? large : small).replay();
      small.check();
      large.check();
      if (HasFatalFailure()) return;
    }
  });
}

TEST_P(Graphs, ThatAreNeverLaunchedDestroyedOrMadeAnewUseUpNoSequence) {
  as_ranks(GetParam(), options(), [](Rank& rank) {
    Operation kept(rank, 1, 3000), never(rank, 2, 50000), eager(rank, 3, 100);
    rank.crossing.wait();
    // Ranks capture different numbers of graphs: capture is nobody else's concern.
    for (int i = 0; i <= rank.rank; ++i) {
      never.capture(cudaStreamCaptureModeThreadLocal);
      never.forget();
    }
    kept.capture(cudaStreamCaptureModeThreadLocal);
    rank.crossing.wait();
    for (int round = 0; round < 20; ++round) {
      if (round % 5 == rank.rank % 5) kept.instantiate();
      kept.poison();
      kept.replay();
      kept.check();
      eager.poison();
      eager.call();
      eager.check();
      if (HasFatalFailure()) return;
    }
  });
}

TEST_P(Graphs, TwoStreamsOrderedByAnEventShareACommunicator) {
  as_ranks(GetParam(), options(), [](Rank& rank) {
    cudaStream_t second = nullptr;
    cudaEvent_t done = nullptr;
    expect_ok(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), "cudaStreamCreate");
    expect_ok(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "cudaEventCreate");
    Rank other{rank.rank, rank.ranks, second, rank.communicator, rank.crossing};
    Operation one(rank, 1, 30000), two(other, 2, 200);
    rank.crossing.wait();
    for (int round = 0; round < 50; ++round) {
      one.poison();
      one.call();
      expect_ok(cudaEventRecord(done, rank.stream), "cudaEventRecord");
      expect_ok(cudaStreamWaitEvent(second, done), "cudaStreamWaitEvent");
      two.poison();
      two.call();
      expect_ok(cudaEventRecord(done, second), "cudaEventRecord");
      expect_ok(cudaStreamWaitEvent(rank.stream, done), "cudaStreamWaitEvent");
      if (round % 10 != 9) continue;
      one.check();
      two.check();
      if (HasFatalFailure()) return;
    }
    expect_ok(cudaStreamDestroy(second), "cudaStreamDestroy");
    expect_ok(cudaEventDestroy(done), "cudaEventDestroy");
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Graphs, ::testing::Values(2, 3, 4, 8));

}  // namespace
}  // namespace tensorwire::test
