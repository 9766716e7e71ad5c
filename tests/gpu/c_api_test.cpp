// The C API on memory of GPUs: ranks as threads, each with a communicator of its own, over whichever path there is.
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "gpu/api_ranks.hpp"

namespace tensorwire::test {
namespace {

using collective::DType;
using collective::Op;

/// How many ranks, by which path (TENSORWIRE_PATH), on how many hosts.
struct Way {
  int ranks;
  const char* path;
  int hosts = 1;
};

class GpuApi : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_GPU();
    // As in proxy_test.cpp: kernels of different hosts on one GPU would have to fit on it together.
    if (GetParam().ranks > 4 * gpu_count()) GTEST_SKIP() << GetParam().ranks << " ranks do not fit on the GPUs here";
    path_.emplace(GetParam().path, GetParam().ranks, GetParam().hosts);
  }

 private:
  std::optional<OnPath> path_;
};

TEST_P(GpuApi, ReducesEagerlyAndInGraphs) {
  as_api_ranks(GetParam().ranks, [](ApiRank& rank) {
    ASSERT_EQ(twCommInitGpu(rank.comm, rank.device), twSuccess) << rank.line();
    const char* path = nullptr;
    ASSERT_EQ(twCommGpuPath(rank.comm, &path), twSuccess);
    EXPECT_STREQ(path, GetParam().path);
    constexpr std::size_t kMost = 3'000'000;
    const DeviceBytes in(kMost * 2), out(kMost * 2);
    rank.crossing.wait();  // an allocation may wait for kernels of other ranks, which would wait for this one
    for (const std::size_t count : {std::size_t{1}, std::size_t{4096}, std::size_t{100001}, kMost}) {
      rank.write(in, input_of(count, rank.rank, count, DType::kBfloat16));
      const auto expected = expected_of(count, rank.ranks, count, DType::kBfloat16, Op::kSum, GetParam().hosts);
      const auto call = [&] {
        return twAllReduce(in.data(), out.data(), count, twBfloat16, twSum, rank.comm, rank.stream);
      };
      const auto got = [&] {
        std::vector<std::byte> all = rank.read(out);
        all.resize(count * 2);
        return all;
      };
      ASSERT_EQ(call(), twSuccess) << rank.line();
      EXPECT_EQ(got(), expected) << count << " elements";
      for (const auto mode :
           {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
        // In global mode no thread of the process may do what could disturb a capture: they capture in turns.
        for (int turn = 0; turn < rank.ranks; ++turn) {
          rank.crossing.wait();
          if (turn == rank.rank) rank.capture(mode, call);
        }
        rank.crossing.wait();
        rank.write(out, std::vector<std::byte>(count * 2));
        rank.replay();
        EXPECT_EQ(got(), expected) << count << " elements, captured";
      }
    }
    twResult_t state = twInternalError;
    EXPECT_EQ(twCommGetAsyncError(rank.comm, &state), twSuccess);
    EXPECT_EQ(state, twSuccess);
    twStats_t stats;
    ASSERT_EQ(twCommGetStats(rank.comm, &stats), twSuccess);
    EXPECT_EQ(stats.operations, 4U * 4U);  // of each size one eagerly, three by graphs
    EXPECT_EQ(stats.bytes, 4U * 2U * (1 + 4096 + 100001 + kMost));
  });
}

TEST_P(GpuApi, JoinsTheGpusAtTheFirstCollective) {
  as_api_ranks(GetParam().ranks, [](ApiRank& rank) {
    const DeviceBytes memory(400);
    rank.write(memory, input_of(7, rank.rank, 100, DType::kFloat32));
    rank.begin_capture(cudaStreamCaptureModeThreadLocal);
    EXPECT_EQ(twAllReduce(memory.data(), memory.data(), 100, twFloat32, twMax, rank.comm, rank.stream), twInvalidUsage);
    rank.end_capture();
    ASSERT_EQ(twAllReduce(memory.data(), memory.data(), 100, twFloat32, twMax, rank.comm, rank.stream), twSuccess)
        << rank.line();
    EXPECT_EQ(rank.read(memory), expected_of(7, rank.ranks, 100, DType::kFloat32, Op::kMax));
  });
}

TEST_P(GpuApi, RefusesWhatMakesNoSense) {
  as_api_ranks(GetParam().ranks, [](ApiRank& rank) {
    ASSERT_EQ(twCommInitGpu(rank.comm, rank.device), twSuccess) << rank.line();
    const DeviceBytes memory(400);
    rank.copies_by_cpu = true;
    std::vector<float> host(100, 1.0F);
    EXPECT_EQ(twAllReduce(memory.data(), host.data(), 100, twFloat32, twSum, rank.comm, rank.stream),
              twInvalidArgument);
    EXPECT_EQ(twAllReduce(host.data(), host.data(), 100, twFloat32, twSum, rank.comm, rank.stream), twInvalidArgument);
    EXPECT_EQ(
        twAllReduce(memory.data(), memory.data(), 100, static_cast<twDataType_t>(3), twSum, rank.comm, rank.stream),
        twInvalidArgument);
    twFusedRmsNorm_t fused TW_FUSED_RMS_NORM_INITIALIZER;
    EXPECT_EQ(twFusedAllReduceRmsNorm(&fused, twBfloat16, rank.comm, rank.stream), twInvalidArgument);
    // None of it is final; and host memory still goes its own way.
    EXPECT_EQ(twAllReduce(host.data(), host.data(), 100, twFloat32, twSum, rank.comm, nullptr), twSuccess)
        << rank.line();
    EXPECT_EQ(host[99], static_cast<float>(rank.ranks));
  });
}

TEST_P(GpuApi, EndsByTheBoundWhenARankDoesNotCome) {
  twConfig_t config TW_CONFIG_INITIALIZER;
  config.operationTimeoutMs = 300;
  as_api_ranks(
      GetParam().ranks,
      [](ApiRank& rank) {
        ASSERT_EQ(twCommInitGpu(rank.comm, rank.device), twSuccess) << rank.line();
        const DeviceBytes memory(4096);
        rank.crossing.wait();
        if (rank.rank == 0) {
          ASSERT_EQ(twAllReduce(memory.data(), memory.data(), 1024, twFloat32, twSum, rank.comm, rank.stream),
                    twSuccess);
          rank.synchronize();
          twResult_t state = twSuccess;
          ASSERT_EQ(twCommGetAsyncError(rank.comm, &state), twSuccess);
          EXPECT_EQ(state, twTimeout);
          EXPECT_NE(rank.line().find("for rank"), std::string::npos) << rank.line();
          EXPECT_EQ(twAllReduce(memory.data(), memory.data(), 1024, twFloat32, twSum, rank.comm, rank.stream),
                    twTimeout);
        }
        rank.crossing.wait();
      },
      config);
}

/// Every call once, each rank's buffers on its GPU: the same on all paths.
void every_call(ApiRank& rank) {
  const auto ranks = static_cast<std::size_t>(rank.ranks);
  const auto me = static_cast<std::size_t>(rank.rank);
  const auto numbers = [](std::size_t count, float first) {
    std::vector<float> made(count);
    for (std::size_t i = 0; i < count; ++i) made[i] = first + static_cast<float>(i);
    return made;
  };
  constexpr std::size_t kCount = 1000;
  const DeviceBytes in(ranks * kCount * 4), out(ranks * kCount * 4);
  rank.crossing.wait();
  const auto give = [&](const std::vector<float>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    rank.write(in, {bytes.begin(), bytes.end()});
  };
  const auto got = [&] {
    const std::vector<std::byte> bytes = rank.read(out);
    std::vector<float> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  give(numbers(ranks * kCount, 1000.0F * static_cast<float>(me)));
  const auto* send = in.data();
  auto* recv = out.data();
  ASSERT_EQ(twAllGather(send, recv, kCount, twFloat32, rank.comm, rank.stream), twSuccess) << rank.line();
  const std::vector<float> gathered = got();
  for (std::size_t i = 0; i < gathered.size(); ++i) ASSERT_EQ(gathered[i], static_cast<float>(i));
  ASSERT_EQ(twAllToAll(send, recv, kCount, twFloat32, rank.comm, rank.stream), twSuccess) << rank.line();
  const std::vector<float> exchanged = got();
  for (std::size_t i = 0; i < exchanged.size(); ++i) ASSERT_EQ(exchanged[i], static_cast<float>(i + me * kCount));
  ASSERT_EQ(twBroadcast(send, recv, kCount, twFloat32, rank.ranks - 1, rank.comm, rank.stream), twSuccess);
  EXPECT_EQ(got()[7], 1000.0F * static_cast<float>(ranks - 1) + 7);
  ASSERT_EQ(twReduceScatter(send, recv, kCount, twFloat32, twMax, rank.comm, rank.stream), twSuccess) << rank.line();
  EXPECT_EQ(got()[3], 1000.0F * static_cast<float>(ranks - 1 + me) + 3);
  ASSERT_EQ(twBarrier(rank.comm, rank.stream), twSuccess) << rank.line();
  rank.copies_by_cpu = true;
  // Everybody sends to the right before it receives from the left: only a group can.
  const int right = (rank.rank + 1) % rank.ranks, left = (rank.rank + rank.ranks - 1) % rank.ranks;
  ASSERT_EQ(twGroupStart(), twSuccess);
  ASSERT_EQ(twSend(send, kCount, twFloat32, right, rank.comm, rank.stream), twSuccess) << rank.line();
  ASSERT_EQ(twRecv(recv, kCount, twFloat32, left, rank.comm, rank.stream), twSuccess) << rank.line();
  ASSERT_EQ(twGroupEnd(), twSuccess) << rank.line();
  EXPECT_EQ(got()[9], 1000.0F * static_cast<float>(left) + 9);
}

TEST_P(GpuApi, EveryCall) {
  as_api_ranks(GetParam().ranks, [](ApiRank& rank) {
    ASSERT_EQ(twCommInitGpu(rank.comm, rank.device), twSuccess) << rank.line();
    every_call(rank);
  });
}

TEST(GpuApiThroughHost, CannotBeCaptured) {
  SKIP_WITHOUT_GPU();
  ::setenv("TENSORWIRE_PATH", "host", 1);
  as_api_ranks(2, [](ApiRank& rank) {
    ASSERT_EQ(twCommInitGpu(rank.comm, rank.device), twSuccess) << rank.line();
    const char* path = nullptr;
    ASSERT_EQ(twCommGpuPath(rank.comm, &path), twSuccess);
    EXPECT_STREQ(path, "host");
    every_call(rank);
    const DeviceBytes memory(64);
    rank.begin_capture(cudaStreamCaptureModeThreadLocal);
    EXPECT_EQ(twAllReduce(memory.data(), memory.data(), 4, twFloat32, twSum, rank.comm, rank.stream), twInvalidUsage);
    rank.end_capture();
  });
  ::unsetenv("TENSORWIRE_PATH");
}

INSTANTIATE_TEST_SUITE_P(Ways, GpuApi,
                         ::testing::Values(Way{2, "peer"}, Way{4, "peer"}, Way{2, "shared"}, Way{4, "shared"},
                                           Way{2, "proxy"}, Way{3, "proxy"}, Way{4, "proxy"}, Way{4, "hierarchical", 2},
                                           Way{6, "hierarchical", 3}),
                         [](const auto& way) { return way.param.path + std::to_string(way.param.ranks); });

}  // namespace
}  // namespace tensorwire::test
