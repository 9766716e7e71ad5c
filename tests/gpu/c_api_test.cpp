// The C API on memory of GPUs: ranks as threads, each with a communicator of its own, over whichever path there is.
#include <cstring>
#include <string>

#include "gpu/api_ranks.hpp"

namespace tensorwire::test {
namespace {

using collective::DType;
using collective::Op;

class GpuApi : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

TEST_P(GpuApi, ReducesEagerlyAndInGraphs) {
  as_api_ranks(GetParam(), [](ApiRank& rank) {
    ASSERT_EQ(twCommInitGpu(rank.comm, rank.device), twSuccess) << rank.line();
    const char* path = nullptr;
    ASSERT_EQ(twCommGpuPath(rank.comm, &path), twSuccess);
    EXPECT_STREQ(path, "peer");
    for (const std::size_t count : {1U, 4096U, 100001U, 3'000'000U}) {
      const DeviceBytes in(count * 2), out(count * 2);
      rank.write(in, input_of(count, rank.rank, count, DType::kBfloat16));
      const auto expected = expected_of(count, rank.ranks, count, DType::kBfloat16, Op::kSum);
      const auto call = [&] {
        return twAllReduce(in.data(), out.data(), count, twBfloat16, twSum, rank.comm, rank.stream);
      };
      ASSERT_EQ(call(), twSuccess) << rank.line();
      EXPECT_EQ(rank.read(out), expected) << count << " elements";
      for (const auto mode :
           {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
        rank.crossing.wait();
        // In global mode no thread of the process may do what could disturb a capture: they capture in turns.
        for (int turn = 0; turn < rank.ranks; ++turn) {
          if (turn == rank.rank) rank.capture(mode, call);
          rank.crossing.wait();
        }
        rank.write(out, std::vector<std::byte>(count * 2));
        rank.replay();
        EXPECT_EQ(rank.read(out), expected) << count << " elements, captured";
      }
    }
    twResult_t state = twInternalError;
    EXPECT_EQ(twCommGetAsyncError(rank.comm, &state), twSuccess);
    EXPECT_EQ(state, twSuccess);
  });
}

TEST_P(GpuApi, JoinsTheGpusAtTheFirstCollective) {
  as_api_ranks(GetParam(), [](ApiRank& rank) {
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
  as_api_ranks(GetParam(), [](ApiRank& rank) {
    ASSERT_EQ(twCommInitGpu(rank.comm, rank.device), twSuccess) << rank.line();
    const DeviceBytes memory(400);
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
      GetParam(),
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

INSTANTIATE_TEST_SUITE_P(Ranks, GpuApi, ::testing::Values(2, 4));

}  // namespace
}  // namespace tensorwire::test
