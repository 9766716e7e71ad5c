// libtensorwire.so as a program sees it: set-up, all-reduce, errors, abort, the end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "c_api_ranks.hpp"

namespace tensorwire::comm {
namespace {

TEST(CApi, AnAllReduceFromIdToDestroy) {
  const auto results = run_ranks(3, [](bootstrap::Group& group) {
    twComm_t comm = init_rank(group);
    int count = 0;
    int rank = -1;
    expect_success(twCommCount(comm, &count), "twCommCount", comm);
    expect_success(twCommUserRank(comm, &rank), "twCommUserRank", comm);
    if (count != 3 || rank != group.rank()) throw Error{"ask who I am", fmt::format("{} of {}", rank, count)};
    for (const std::size_t elements : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{300'000}}) {
      std::vector<float> in(elements);
      for (std::size_t i = 0; i < elements; ++i) in[i] = static_cast<float>(rank + 1) + static_cast<float>(i % 64);
      std::vector<float> out(elements, -1.0F);
      expect_success(twAllReduce(in.data(), out.data(), elements, twFloat32, twSum, comm, nullptr), "twAllReduce",
                     comm);
      for (std::size_t i = 0; i < elements; ++i) {
        if (out[i] != 6.0F + 3.0F * static_cast<float>(i % 64)) throw Error{"all-reduce", "the sum is wrong"};
      }
    }
    expect_success(twCommFinalize(comm), "twCommFinalize", comm);
    float value = 1;
    expect(twAllReduce(&value, &value, 1, twFloat32, twSum, comm, nullptr), twInvalidUsage, "after finalize", comm);
    expect_success(twCommDestroy(comm), "twCommDestroy");
    return std::string{};
  });
  EXPECT_EQ(problems(results), "");
}

TEST(CApi, InvalidArgumentsAreRefusedAndLeaveTheCommunicatorWell) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    twComm_t comm = init_rank(group);
    std::vector<float> data(128, 1.0F);
    const auto reduce = [&](const void* send, void* recv, twDataType_t type, twRedOp_t op, void* stream) {
      return twAllReduce(send, recv, 64, type, op, comm, stream);
    };
    expect(reduce(nullptr, data.data(), twFloat32, twSum, nullptr), twInvalidArgument, "null", comm);
    expect(reduce(data.data(), data.data() + 8, twFloat32, twSum, nullptr), twInvalidArgument, "overlap", comm);
    const std::string line = twGetLastError(comm);
    if (line.find("overlap in part") == std::string::npos) throw Error{"the line", line};
    expect(reduce(data.data(), data.data(), static_cast<twDataType_t>(5), twSum, nullptr), twInvalidArgument, "type",
           comm);
    expect(reduce(data.data(), data.data(), twFloat32, static_cast<twRedOp_t>(1), nullptr), twInvalidArgument, "op",
           comm);
    expect(reduce(data.data(), data.data(), twFloat32, twSum, data.data()), twInvalidArgument, "stream", comm);
    twResult_t state = twInternalError;
    expect_success(twCommGetAsyncError(comm, &state), "twCommGetAsyncError", comm);
    expect_success(state, "the state", comm);
    expect_success(reduce(data.data(), data.data(), twFloat32, twSum, nullptr), "twAllReduce", comm);
    expect_success(twCommDestroy(comm), "twCommDestroy");
    return std::string{};
  });
  EXPECT_EQ(problems(results), "");
}

TEST(CApi, NullsAndNonsenseGiveALineOfTheThread) {
  EXPECT_EQ(twAllReduce(nullptr, nullptr, 1, twFloat32, twSum, nullptr, nullptr), twInvalidArgument);
  EXPECT_NE(std::string{twGetLastError(nullptr)}.find("the communicator is null"), std::string::npos);
  EXPECT_EQ(twCommDestroy(nullptr), twSuccess);
  EXPECT_EQ(twGetUniqueId(nullptr), twInvalidArgument);
  EXPECT_EQ(twCommRequestAbort(nullptr), twInvalidArgument);
  EXPECT_EQ(twCommAbort(nullptr), twInvalidArgument);
  EXPECT_STREQ(twGetErrorString(static_cast<twResult_t>(15)), "unknown result");

  int version = 0;
  EXPECT_EQ(twGetVersion(&version), twSuccess);
  EXPECT_EQ(version, TENSORWIRE_VERSION);

  twComm_t comm = nullptr;
  twUniqueId id{};
  EXPECT_EQ(twCommInitRank(&comm, 2, id, 0), twInvalidArgument);
  EXPECT_NE(std::string{twGetLastError(nullptr)}.find("not an id of this version"), std::string::npos);
  EXPECT_EQ(comm, nullptr);
  ASSERT_EQ(twGetUniqueId(&id), twSuccess);
  EXPECT_EQ(twCommInitRank(&comm, 2, id, 2), twInvalidArgument) << "there is no rank 2 of 2";
  twConfig_t config TW_CONFIG_INITIALIZER;
  config.depth = 1;
  EXPECT_EQ(twCommInitRankConfig(&comm, 2, id, 1, &config), twInvalidArgument);
  EXPECT_NE(std::string{twGetLastError(nullptr)}.find("depth is 1; 2 to 64"), std::string::npos)
      << twGetLastError(nullptr);
}

TEST(CApi, AnIdServesOneCommunicatorAndRankZeroMustHaveMadeIt) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    twUniqueId id = shared_id(group);
    twComm_t comm = nullptr;
    // The process of rank 1 did not make the id.
    if (group.rank() == 1) {
      expect(twCommInitRank(&comm, 2, id, 0), twInvalidArgument, "rank 0 elsewhere");
      return std::string{twGetLastError(nullptr)};
    }
    return std::string{};
  });
  EXPECT_EQ(problems(results), "");
  EXPECT_NE(results[1].text.find("this process did not make the id"), std::string::npos) << results[1].text;
}

TEST(CApi, AMissingRankIsNamedWithinTheBootstrapTimeout) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    const twUniqueId id = shared_id(group);
    if (group.rank() == 1) {
      group.barrier();
      return std::string{};
    }
    setenv("TENSORWIRE_BOOTSTRAP_TIMEOUT", "500ms", 1);
    twComm_t comm = nullptr;
    const twConfig_t config = soft_config();
    expect(twCommInitRankConfig(&comm, 2, id, 0, &config), twRemoteError, "twCommInitRank");
    group.barrier();
    return std::string{twGetLastError(nullptr)};
  });
  EXPECT_EQ(problems(results), "");
  EXPECT_NE(results[0].text.find("rank 1 of 2 did not come within 500ms"), std::string::npos) << results[0].text;
}

/// All-reduces until one fails; the result and the line.
std::string reduce_until_failure(twComm_t comm) {
  std::vector<float> data(1000, 1.0F);
  for (;;) {
    const twResult_t result = twAllReduce(data.data(), data.data(), data.size(), twFloat32, twSum, comm, nullptr);
    if (result != twSuccess) return fmt::format("{}: {}", static_cast<int>(result), twGetLastError(comm));
  }
}

TEST(CApi, AbortFromAnotherThreadGivesEverythingBackButTheHandle) {
  const auto results = run_ranks(3, [](bootstrap::Group& group) {
    twComm_t comm = init_rank(group);
    std::thread aborter;
    if (group.rank() == 2) {
      aborter = std::thread{[&] {
        std::this_thread::sleep_for(std::chrono::milliseconds{200});
        expect_success(twCommAbort(comm), "twCommAbort", comm);
      }};
    }
    const std::string text = reduce_until_failure(comm);
    if (aborter.joinable()) aborter.join();
    twResult_t state = twSuccess;
    expect_success(twCommGetAsyncError(comm, &state), "twCommGetAsyncError", comm);
    expect(state, group.rank() == 2 ? twAborted : twRemoteError, "the state", comm);
    expect_success(twCommDestroy(comm), "twCommDestroy");
    return text;
  });
  EXPECT_EQ(problems(results), "");
  EXPECT_TRUE(results[2].text.starts_with("10: ")) << results[2].text;
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(results[rank].text.starts_with("6: ")) << results[rank].text;
    EXPECT_NE(results[rank].text.find("rank 2"), std::string::npos) << results[rank].text;
    EXPECT_NE(results[rank].text.find("twCommAbort was called"), std::string::npos) << results[rank].text;
  }
}

twComm_t interrupted = nullptr;

TEST(CApi, ASignalHandlerMayAskForTheAbort) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    twComm_t comm = init_rank(group);
    interrupted = comm;
    if (group.rank() == 1) {
      std::signal(SIGALRM, [](int) { static_cast<void>(twCommRequestAbort(interrupted)); });
      alarm(1);
    }
    const std::string text = reduce_until_failure(comm);
    expect_success(twCommDestroy(comm), "twCommDestroy");
    return text;
  });
  EXPECT_EQ(problems(results), "");
  EXPECT_TRUE(results[1].text.starts_with("10: ")) << results[1].text;
  EXPECT_TRUE(results[0].text.starts_with("6: ")) << results[0].text;
}

TEST(CApi, NonBlockingSetUpGoesOnInAThread) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    twConfig_t config = soft_config();
    config.blocking = 0;
    const twUniqueId id = shared_id(group);
    twComm_t comm = nullptr;
    twResult_t state = twInProgress;
    if (group.rank() == 1) {
      expect(twCommInitRankConfig(&comm, 2, id, 1, &config), twInProgress, "twCommInitRankConfig");
      expect_success(twCommGetAsyncError(comm, &state), "twCommGetAsyncError", comm);
      expect(state, twInProgress, "the state while rank 0 has not begun", comm);
      float value = 1;
      expect(twAllReduce(&value, &value, 1, twFloat32, twSum, comm, nullptr), twInvalidUsage, "too early", comm);
    }
    group.barrier();
    if (group.rank() == 0) expect(twCommInitRankConfig(&comm, 2, id, 0, &config), twInProgress, "twCommInitRankConfig");
    do {
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
      expect_success(twCommGetAsyncError(comm, &state), "twCommGetAsyncError", comm);
    } while (state == twInProgress);
    expect_success(state, "set-up", comm);
    float value = 1;
    expect_success(twAllReduce(&value, &value, 1, twFloat32, twSum, comm, nullptr), "twAllReduce", comm);
    expect_success(twCommDestroy(comm), "twCommDestroy");
    return fmt::format("{}", value);
  });
  EXPECT_EQ(problems(results), "");
  for (const auto& result : results) EXPECT_EQ(result.text, "2");
}

TEST(CApi, ASecondThreadOnOneCommunicatorIsToldSo) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    twComm_t comm = init_rank(group);
    if (group.rank() == 1) {
      group.barrier();
      float value = 1;
      expect_success(twAllReduce(&value, &value, 1, twFloat32, twSum, comm, nullptr), "twAllReduce", comm);
    } else {
      // Waits for rank 1, which waits for the barrier.
      std::thread first{[&] {
        float value = 1;
        static_cast<void>(twAllReduce(&value, &value, 1, twFloat32, twSum, comm, nullptr));
      }};
      std::this_thread::sleep_for(std::chrono::milliseconds{200});
      float value = 1;
      const twResult_t second = twAllReduce(&value, &value, 1, twFloat32, twSum, comm, nullptr);
      const std::string line = twGetLastError(comm);
      group.barrier();
      first.join();
      expect(second, twInvalidUsage, "the second thread", comm);
      if (line.find("another thread is using") == std::string::npos) throw Error{"the line", line};
    }
    expect_success(twCommDestroy(comm), "twCommDestroy");
    return std::string{};
  });
  EXPECT_EQ(problems(results), "");
}

TEST(CApi, SeveralCommunicatorsInSeveralThreadsShareADevice) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    constexpr int kCommunicators = 3;
    std::vector<twComm_t> comms;
    for (int i = 0; i < kCommunicators; ++i) comms.push_back(init_rank(group));
    std::vector<std::thread> threads;
    std::vector<std::string> wrong(kCommunicators);
    for (int i = 0; i < kCommunicators; ++i) {
      threads.emplace_back([&, i] {
        for (int round = 0; round < 100; ++round) {
          std::vector<float> data(static_cast<std::size_t>(1 + round * 97), static_cast<float>(i + round));
          const twResult_t result =
              twAllReduce(data.data(), data.data(), data.size(), twFloat32, twSum, comms[i], nullptr);
          if (result != twSuccess) wrong[i] = twGetLastError(comms[i]);
          for (const float value : data) {
            if (value != 2.0F * static_cast<float>(i + round)) wrong[i] = "the sum is wrong";
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (twComm_t comm : comms) expect_success(twCommDestroy(comm), "twCommDestroy");
    return wrong[0] + wrong[1] + wrong[2];
  });
  EXPECT_EQ(problems(results), "");
  for (const auto& result : results) EXPECT_EQ(result.text, "");
}

}  // namespace
}  // namespace tensorwire::comm
