// The path by a proxy thread: tensors of all sizes and alignments, rounds, graphs in any order, delays, aborts. What is
// the same on every path is in c_api_test.cpp.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "gpu/api_ranks.hpp"
#include "gpu/delay.hpp"

namespace tensorwire::test {
namespace {

using collective::DType;
using collective::Op;

class GpuProxy : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_GPU();
    ::setenv("TENSORWIRE_PATH", "proxy", 1);
  }
  void TearDown() override { ::unsetenv("TENSORWIRE_PATH"); }
};

std::vector<std::byte> first(std::vector<std::byte> bytes, std::size_t wanted) {
  bytes.resize(wanted);
  return bytes;
}

TEST_P(GpuProxy, AnySizeTypeOperatorAndAlignment) {
  as_api_ranks(GetParam(), [](ApiRank& rank) {
    ASSERT_EQ(twCommInitGpu(rank.comm, rank.device), twSuccess) << rank.line();
    constexpr std::size_t kMost = 5'000'003;
    const DeviceBytes in(kMost * 4 + 64), out(kMost * 4 + 64);
    rank.crossing.wait();
    std::uint64_t seed = 0;
    const struct {
      DType dtype;
      twDataType_t name;
    } types[] = {{DType::kFloat32, twFloat32},
                 {DType::kFloat16, twFloat16},
                 {DType::kBfloat16, twBfloat16},
                 {DType::kInt32, twInt32}};
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{7}, std::size_t{1000}, std::size_t{131072}, std::size_t{200001}, kMost}) {
      for (const auto& type : types) {
        for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
          const Op op = ++seed % 3 == 0 ? Op::kMax : seed % 3 == 1 ? Op::kSum : Op::kAverage;
          const twRedOp_t name = op == Op::kMax ? twMax : op == Op::kSum ? twSum : twAvg;
          const std::size_t element = collective::element_bytes(type.dtype);
          const std::vector<std::byte> input = input_of(seed, rank.rank, count, type.dtype);
          expect_ok(cudaMemcpyAsync(in.data() + shift * element, input.data(), input.size(), cudaMemcpyHostToDevice,
                                    rank.stream),
                    "copy in");
          rank.synchronize();
          const bool in_place = seed % 4 == 3;
          std::byte* to = (in_place ? in.data() : out.data()) + shift * element;
          ASSERT_EQ(twAllReduce(in.data() + shift * element, to, count, type.name, name, rank.comm, rank.stream),
                    twSuccess)
              << rank.line();
          rank.synchronize();
          std::vector<std::byte> got(input.size());
          expect_ok(cudaMemcpyAsync(got.data(), to, got.size(), cudaMemcpyDeviceToHost, rank.stream), "copy out");
          rank.synchronize();
          const std::vector<std::byte> expected = expected_of(seed, rank.ranks, count, type.dtype, op);
          const auto wrong = std::ranges::mismatch(got, expected).in1 - got.begin();
          ASSERT_EQ(static_cast<std::size_t>(wrong), expected.size())
              << count << " elements of type " << static_cast<int>(type.dtype) << ", case " << seed << ", rank "
              << rank.rank << ": " << rank.line() << ::testing::PrintToString(first(got, 32)) << ", expected "
              << ::testing::PrintToString(first(expected, 32));
        }
      }
    }
  });
}

/// Graphs of different sizes, replayed in an order that all ranks share, with eager calls and delays between them.
TEST_P(GpuProxy, GraphsInAnyOrderWithDelays) {
  as_api_ranks(GetParam(), [](ApiRank& rank) {
    ASSERT_EQ(twCommInitGpu(rank.comm, rank.device), twSuccess) << rank.line();
    constexpr int kGraphs = 12;
    constexpr std::size_t kMost = 400'000;
    const DeviceBytes in(kMost * 2), out(kMost * 2);
    rank.crossing.wait();
    std::vector<std::size_t> counts;
    std::vector<decltype(rank.graph)> graphs;
    for (int i = 0; i < kGraphs; ++i) {
      counts.push_back(1 + static_cast<std::size_t>(i) * kMost / kGraphs);
      rank.capture(cudaStreamCaptureModeThreadLocal, [&] {
        return twAllReduce(in.data(), out.data(), counts.back(), twBfloat16, twSum, rank.comm, rank.stream);
      });
      graphs.push_back(std::move(rank.graph));
    }
    std::mt19937 order{42};
    std::mt19937 own{static_cast<unsigned>(rank.rank)};
    for (int turn = 0; turn < 60; ++turn) {
      const auto chosen = order() % kGraphs;
      const bool eager = order() % 4 == 0;
      const auto seed = static_cast<std::uint64_t>(turn);
      rank.write(in, first(input_of(seed, rank.rank, counts[chosen], DType::kBfloat16), in.size()));
      if (own() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 5000));
      if (eager) {
        ASSERT_EQ(twAllReduce(in.data(), out.data(), counts[chosen], twBfloat16, twSum, rank.comm, rank.stream),
                  twSuccess);
      } else {
        expect_ok(cudaGraphLaunch(graphs[chosen].get(), rank.stream), "launch");
      }
      ASSERT_EQ(first(rank.read(out), counts[chosen] * 2),
                expected_of(seed, rank.ranks, counts[chosen], DType::kBfloat16, Op::kSum))
          << "turn " << turn << ": " << rank.line();
    }
    // Eight replays in flight.
    rank.write(in, first(input_of(99, rank.rank, counts[5], DType::kBfloat16), in.size()));
    for (int i = 0; i < 8; ++i) expect_ok(cudaGraphLaunch(graphs[5].get(), rank.stream), "launch");
    EXPECT_EQ(first(rank.read(out), counts[5] * 2), expected_of(99, rank.ranks, counts[5], DType::kBfloat16, Op::kSum));
  });
}

TEST_P(GpuProxy, AnAbortEndsAReplayAndWhatFollows) {
  as_api_ranks(GetParam(), [](ApiRank& rank) {
    ASSERT_EQ(twCommInitGpu(rank.comm, rank.device), twSuccess) << rank.line();
    const DeviceBytes memory(1U << 20);
    rank.crossing.wait();
    rank.capture(cudaStreamCaptureModeThreadLocal, [&] {
      twResult_t result = twSuccess;
      for (int i = 0; i < 160 && result == twSuccess; ++i) {
        result = twAllReduce(memory.data(), memory.data(), 1000, twFloat32, twSum, rank.comm, rank.stream);
      }
      return result;
    });
    rank.crossing.wait();
    if (rank.rank != 0) rank.replay();  // and waits for rank 0, which never comes
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (rank.rank == 0) {
      EXPECT_EQ(twCommAbort(rank.comm), twSuccess);
    }
    const auto began = std::chrono::steady_clock::now();
    rank.synchronize();
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(2));
    if (rank.rank != 0) {
      twResult_t state = twSuccess;
      ASSERT_EQ(twCommGetAsyncError(rank.comm, &state), twSuccess);
      EXPECT_NE(state, twSuccess);
      EXPECT_NE(rank.line().find("rank 0"), std::string::npos) << rank.line();
    }
    rank.crossing.wait();
  });
}

TEST_P(GpuProxy, AllReduceAddNormIsTheSameAsOnThePathOfPeers) {
  constexpr std::size_t kRows = 5, kHidden = 4096, kCount = kRows * kHidden;
  std::vector<std::byte> norms[2], residuals[2];
  for (const int way : {0, 1}) {
    ::setenv("TENSORWIRE_PATH", way == 0 ? "proxy" : "peer", 1);
    as_api_ranks(GetParam(), [&](ApiRank& rank) {
      ASSERT_EQ(twCommInitGpu(rank.comm, rank.device), twSuccess) << rank.line();
      const DeviceBytes in(kCount * 2), residual(kCount * 2), weight(kHidden * 2), sum(kCount * 2), norm(kCount * 2);
      rank.write(in, input_of(5, rank.rank, kCount, DType::kBfloat16));
      rank.write(residual, input_of(6, 0, kCount, DType::kBfloat16));
      rank.write(weight, input_of(7, 0, kHidden, DType::kBfloat16));
      rank.crossing.wait();
      twFusedRmsNorm_t fused TW_FUSED_RMS_NORM_INITIALIZER;
      fused.in = in.data();
      fused.residualIn = residual.data();
      fused.weight = weight.data();
      fused.residualOut = sum.data();
      fused.normOut = norm.data();
      fused.rows = kRows;
      fused.hidden = kHidden;
      ASSERT_EQ(twFusedAllReduceRmsNorm(&fused, twBfloat16, rank.comm, rank.stream), twSuccess) << rank.line();
      const auto got_norm = rank.read(norm), got_sum = rank.read(sum);
      if (rank.rank != 0) return;
      norms[way] = got_norm;
      residuals[way] = got_sum;
    });
  }
  EXPECT_EQ(residuals[0], residuals[1]);
  EXPECT_EQ(norms[0], norms[1]);
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuProxy, ::testing::Values(2, 3, 4));

}  // namespace
}  // namespace tensorwire::test
