// The paths between hosts, by a proxy thread from end to end and by GPUs inside hosts: tensors of all sizes and
// alignments, rounds, graphs in any order, delays, aborts. What is the same on every path is in c_api_test.cpp.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <random>
#include <thread>

#include "gpu/api_ranks.hpp"
#include "gpu/delay.hpp"

namespace tensorwire::test {
namespace {

using collective::DType;
using collective::Op;

/// Hosts: 1, the proxy's path from end to end.
struct Between {
  int ranks;
  int hosts = 1;
  const char* stream_waits = "off";

  [[nodiscard]] const char* path() const { return hosts == 1 ? "proxy" : "hierarchical"; }
};

class GpuProxy : public ::testing::TestWithParam<Between> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_GPU();
    // Two hosts' kernels on one GPU know nothing of each other, and all blocks of a host's must run at once.
    if (GetParam().ranks > 4 * gpu_count()) GTEST_SKIP() << GetParam().ranks << " ranks do not fit on the GPUs here";
    path_.emplace(GetParam().path(), GetParam().ranks, GetParam().hosts);
    ::setenv("TENSORWIRE_STREAM_WAITS", GetParam().stream_waits, 1);
  }
  void TearDown() override { ::unsetenv("TENSORWIRE_STREAM_WAITS"); }

 private:
  std::optional<OnPath> path_;
};

std::vector<std::byte> first(std::vector<std::byte> bytes, std::size_t wanted) {
  bytes.resize(wanted);
  return bytes;
}

TEST_P(GpuProxy, AnySizeTypeOperatorAndAlignment) {
  as_api_ranks(GetParam().ranks, [](ApiRank& rank) {
    ASSERT_EQ(twCommInitGpu(rank.comm, rank.device), twSuccess) << rank.line();
    const std::size_t most = rank.ranks > 4 ? 2'500'003 : 5'000'003;
    const DeviceBytes in(most * 4 + 64), out(most * 4 + 64);
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
         {std::size_t{1}, std::size_t{7}, std::size_t{1000}, std::size_t{131072}, std::size_t{200001}, most}) {
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
          const std::vector<std::byte> expected =
              expected_of(seed, rank.ranks, count, type.dtype, op, GetParam().hosts);
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
  as_api_ranks(GetParam().ranks, [](ApiRank& rank) {
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
                expected_of(seed, rank.ranks, counts[chosen], DType::kBfloat16, Op::kSum, GetParam().hosts))
          << "turn " << turn << ": " << rank.line();
    }
    // Eight replays in flight.
    rank.write(in, first(input_of(99, rank.rank, counts[5], DType::kBfloat16), in.size()));
    for (int i = 0; i < 8; ++i) expect_ok(cudaGraphLaunch(graphs[5].get(), rank.stream), "launch");
    EXPECT_EQ(first(rank.read(out), counts[5] * 2),
              expected_of(99, rank.ranks, counts[5], DType::kBfloat16, Op::kSum, GetParam().hosts));
  });
}

/// Rank 0 never comes to a replay of all-reduces of `count` elements, and aborts.
void end_by_abort(ApiRank& rank, std::size_t count) {
  ASSERT_EQ(twCommInitGpu(rank.comm, rank.device), twSuccess) << rank.line();
  const DeviceBytes memory(1U << 20);
  rank.crossing.wait();
  rank.capture(cudaStreamCaptureModeThreadLocal, [&] {
    twResult_t result = twSuccess;
    for (int i = 0; i < 160 && result == twSuccess; ++i) {
      result = twAllReduce(memory.data(), memory.data(), count, twFloat32, twSum, rank.comm, rank.stream);
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
}

TEST_P(GpuProxy, AnAbortEndsAReplayAndWhatFollows) {
  as_api_ranks(GetParam().ranks, [](ApiRank& rank) { end_by_abort(rank, 1000); });
}
TEST_P(GpuProxy, AnAbortEndsAReplayOfLargeTensors) {
  as_api_ranks(GetParam().ranks, [](ApiRank& rank) { end_by_abort(rank, 250'001); });
}

constexpr std::size_t kRows = 5, kHidden = 4096, kNormCount = kRows * kHidden;

struct NormAndSum {
  std::vector<std::byte> norm, sum;
  bool operator==(const NormAndSum&) const = default;
};

/// What rank 0 of a communicator of its own makes of the sum of all.
NormAndSum alone_with(const std::vector<std::byte>& reduced) {
  NormAndSum made;
  as_ranks(1, {}, [&](Rank& rank) {
    const DeviceBytes in(kNormCount * 2), residual(kNormCount * 2), weight(kHidden * 2), sum(kNormCount * 2),
        norm(kNormCount * 2);
    const auto give = [](const DeviceBytes& to, const std::vector<std::byte>& from) {
      expect_ok(cudaMemcpy(to.data(), from.data(), from.size(), cudaMemcpyHostToDevice), "copy in");
    };
    give(in, reduced);
    give(residual, input_of(6, 0, kNormCount, DType::kBfloat16));
    give(weight, input_of(7, 0, kHidden, DType::kBfloat16));
    cuda::AddNorm what;
    what.in = in.data();
    what.residual_in = residual.data();
    what.weight = weight.data();
    what.residual_out = sum.data();
    what.norm_out = norm.data();
    what.rows = kRows;
    what.hidden = kHidden;
    ASSERT_EQ(rank.communicator.all_reduce_add_norm(what, DType::kBfloat16, rank.stream), cuda::Status::kOk);
    made = {std::vector<std::byte>(norm.size()), std::vector<std::byte>(sum.size())};
    rank.read(made.norm, norm.data());
    rank.read(made.sum, sum.data());
  });
  return made;
}

TEST_P(GpuProxy, AllReduceAddNormIsTheSumAndThenTheNorm) {
  const NormAndSum expected =
      alone_with(expected_of(5, GetParam().ranks, kNormCount, DType::kBfloat16, Op::kSum, GetParam().hosts));
  as_api_ranks(GetParam().ranks, [&](ApiRank& rank) {
    ASSERT_EQ(twCommInitGpu(rank.comm, rank.device), twSuccess) << rank.line();
    const DeviceBytes in(kNormCount * 2), residual(kNormCount * 2), weight(kHidden * 2), sum(kNormCount * 2),
        norm(kNormCount * 2);
    rank.write(in, input_of(5, rank.rank, kNormCount, DType::kBfloat16));
    rank.write(residual, input_of(6, 0, kNormCount, DType::kBfloat16));
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
    const NormAndSum got{rank.read(norm), rank.read(sum)};
    EXPECT_EQ(got, expected) << "rank " << rank.rank;
  });
}

/// That they are is seen in the captured graph: its nodes wait, not only its kernels.
TEST(GpuStreamWaits, AreNodesOfAGraph) {
  SKIP_WITHOUT_GPU();
  const OnPath path("proxy", 2, 1);
  ::setenv("TENSORWIRE_STREAM_WAITS", "64KiB", 1);
  as_api_ranks(2, [](ApiRank& rank) {
    ASSERT_EQ(twCommInitGpu(rank.comm, rank.device), twSuccess) << rank.line();
    constexpr std::size_t kCount = 3'000'000;  // two windows and a part
    const DeviceBytes memory(kCount * 2);
    rank.crossing.wait();
    rank.begin_capture(cudaStreamCaptureModeThreadLocal);
    ASSERT_EQ(twAllReduce(memory.data(), memory.data(), kCount, twBfloat16, twSum, rank.comm, rank.stream), twSuccess);
    cudaGraph_t graph = nullptr;
    expect_ok(cudaStreamEndCapture(rank.stream, &graph), "end capture");
    std::size_t size = 0;
    expect_ok(cudaGraphGetNodes(graph, nullptr, &size), "nodes");
    std::vector<cudaGraphNode_t> nodes(size);
    expect_ok(cudaGraphGetNodes(graph, nodes.data(), &size), "nodes");
    const auto kernels = std::ranges::count_if(nodes, [](cudaGraphNode_t node) {
      cudaGraphNodeType type = cudaGraphNodeTypeCount;
      return cudaGraphNodeGetType(node, &type) == cudaSuccess && type == cudaGraphNodeTypeKernel;
    });
    EXPECT_EQ(kernels, 6);
    EXPECT_EQ(size, 9U);  // and three waits
    expect_ok(cudaGraphDestroy(graph), "destroy");
  });
  ::unsetenv("TENSORWIRE_STREAM_WAITS");
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuProxy,
                         ::testing::Values(Between{2}, Between{3}, Between{4}, Between{4, 2}, Between{8, 2},
                                           Between{6, 3}, Between{2, 1, "64KiB"}, Between{3, 1, "64KiB"},
                                           Between{4, 2, "64KiB"}, Between{6, 3, "64KiB"}),
                         [](const auto& way) {
                           const Between between = way.param;
                           return between.path() + std::to_string(between.ranks) + "on" +
                                  std::to_string(between.hosts) +
                                  (between.stream_waits[0] == 'o' ? "" : "waitInStream");
                         });

}  // namespace
}  // namespace tensorwire::test
