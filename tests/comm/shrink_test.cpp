// twCommShrink with real processes: ranks die, are stopped and wake, leave while all is well, or are forgotten twice in
// a row; those that go on compute right sums, and give everything back in the end.
#include <dirent.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "c_api_ranks.hpp"

namespace tensorwire::comm {
namespace {

constexpr std::size_t kShrinkCount = 20'000;

twResult_t reduce(twComm_t comm, std::vector<float>& data) {
  return twAllReduce(data.data(), data.data(), data.size(), twFloat32, twSum, comm, nullptr);
}

/// `rounds` all-reduces in which each rank gives 1 + its rank, checked in every element.
void reduce_and_check(twComm_t comm, int rounds) {
  int ranks = 0;
  int rank = 0;
  expect_success(twCommCount(comm, &ranks), "twCommCount");
  expect_success(twCommUserRank(comm, &rank), "twCommUserRank");
  for (int round = 0; round < rounds; ++round) {
    std::vector<float> data(kShrinkCount, 1.0F + static_cast<float>(rank));
    expect_success(reduce(comm, data), "twAllReduce", comm);
    for (const float value : data) {
      if (value != static_cast<float>(ranks * (ranks + 1) / 2)) throw Error{"all-reduce", "the sum is wrong"};
    }
  }
}

twComm_t shrink(twComm_t comm, const std::vector<int>& excluded, int flags = TW_SHRINK_DEFAULT) {
  twComm_t made = nullptr;
  const auto count = static_cast<int>(excluded.size());
  expect_success(twCommShrink(comm, excluded.data(), count, &made, nullptr, flags), "twCommShrink", comm);
  return made;
}

void expect_rank(twComm_t comm, int rank, int ranks) {
  int is_rank = -1;
  int are_ranks = 0;
  expect_success(twCommUserRank(comm, &is_rank), "twCommUserRank");
  expect_success(twCommCount(comm, &are_ranks), "twCommCount");
  if (is_rank != rank || are_ranks != ranks) throw Error{"the ranks", fmt::format("{} of {}", is_rank, are_ranks)};
}

void expect_line(const std::string& line, const std::string& part) {
  if (line.find(part) == std::string::npos) throw Error{"look for '" + part + "'", line};
}

int open_files() {
  DIR* folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

std::vector<pid_t> pids_of(bootstrap::Group& group) {
  const pid_t mine = getpid();
  std::vector<pid_t> pids;
  for (const auto& bytes : group.all_gather(std::as_bytes(std::span{&mine, 1}))) {
    std::memcpy(&pids.emplace_back(), bytes.data(), sizeof mine);
  }
  return pids;
}

class ShrinkAfterDeath : public ::testing::TestWithParam<int> {};

TEST_P(ShrinkAfterDeath, TheOthersGoOn) {
  const int victim = GetParam();
  const auto results = run_ranks(4, [&](bootstrap::Group& group) {
    twComm_t comm = init_rank(group);
    reduce_and_check(comm, 5);
    group.barrier();
    if (group.rank() == victim) kill(getpid(), SIGKILL);
    std::vector<float> data(kShrinkCount, 1.0F);
    twResult_t result = twSuccess;
    while (result == twSuccess) result = reduce(comm, data);
    expect_line(twGetLastError(comm), fmt::format("rank {} on ", victim));
    twComm_t made = shrink(comm, {victim});
    expect_rank(made, group.rank() - (group.rank() > victim ? 1 : 0), 3);
    reduce_and_check(made, 50);
    expect(reduce(comm, data), result, "the old one keeps its error", comm);
    expect_success(twCommDestroy(comm), "twCommDestroy");
    reduce_and_check(made, 10);
    expect_success(twCommDestroy(made), "twCommDestroy");
    return std::string{};
  });
  for (int rank = 0; rank < 4; ++rank) {
    const RankResult& result = results[static_cast<std::size_t>(rank)];
    EXPECT_EQ(result.exit_code, rank == victim ? 128 + SIGKILL : 0) << result.text;
  }
}

INSTANTIATE_TEST_SUITE_P(OfRank, ShrinkAfterDeath, ::testing::Values(0, 1, 3));

TEST(Shrink, RanksThatAreWellMayGoOneByOneAndNothingIsLeftOpen) {
  const auto results = run_ranks(3, [](bootstrap::Group& group) {
    twComm_t first = init_rank(group);  // with what a process opens once, for good
    reduce_and_check(first, 1);
    expect_success(twCommDestroy(first), "twCommDestroy");
    group.barrier();
    const int before = open_files();
    group.barrier();
    twComm_t comm = init_rank(group);
    reduce_and_check(comm, 3);
    for (int gone = 0; gone < 2; ++gone) {
      group.barrier();  // the one that goes is done with its last operation
      if (group.rank() < gone) continue;
      if (group.rank() == gone) {
        // Excluded while it is well: it can see that, and hears of it from its next operation.
        twResult_t state = twSuccess;
        while (state == twSuccess) expect_success(twCommGetAsyncError(comm, &state), "twCommGetAsyncError", comm);
        expect(state, twRemoteError, "the state of an excluded rank", comm);
        std::vector<float> data(kShrinkCount, 1.0F);
        twResult_t result = twSuccess;
        while (result == twSuccess) result = reduce(comm, data);
        expect(result, twRemoteError, "an operation of an excluded rank", comm);
        expect_line(twGetLastError(comm), "the other ranks go on without rank 0 (twCommShrink)");
        continue;
      }
      twComm_t made = shrink(comm, {0});
      std::vector<float> data(kShrinkCount, 1.0F);
      expect(reduce(comm, data), twAborted, "the old one", comm);
      expect_success(twCommDestroy(comm), "twCommDestroy");
      comm = made;
      expect_rank(comm, group.rank() - gone - 1, 2 - gone);
      reduce_and_check(comm, 20);
    }
    expect_success(twCommDestroy(comm), "twCommDestroy");
    group.barrier();
    if (open_files() > before) throw Error{"open files", fmt::format("{} then {}", before, open_files())};
    return std::string{};
  });
  EXPECT_EQ(problems(results), "");
}

class ShrinkWhileStopped : public ::testing::TestWithParam<int> {};

TEST_P(ShrinkWhileStopped, TheRankThatWakesHarmsNobodyAndIsTold) {
  const int victim = GetParam();
  const auto results = run_ranks(3, [&](bootstrap::Group& group) {
    const std::vector<pid_t> pids = pids_of(group);
    twConfig_t config = soft_config();
    if (group.rank() != victim) config.operationTimeoutMs = 600;
    twComm_t comm = init_rank(group, config);
    reduce_and_check(comm, 5);
    if (group.rank() == victim) {
      std::vector<float> data(kShrinkCount, 1.0F);
      // It stops in the middle: with an operation of its own under way as soon as it wakes.
      std::thread stopper{[] {
        std::this_thread::sleep_for(std::chrono::milliseconds{30});
        raise(SIGSTOP);
      }};
      twResult_t result = twSuccess;
      while (result == twSuccess) result = reduce(comm, data);
      stopper.join();
      const std::string line = twGetLastError(comm);
      expect_success(twCommDestroy(comm), "twCommDestroy");
      return line;
    }
    std::vector<float> data(kShrinkCount, 1.0F);
    twResult_t result = twSuccess;
    while (result == twSuccess) result = reduce(comm, data);
    expect_line(twGetLastError(comm), fmt::format("rank {} on ", victim));
    twComm_t made = shrink(comm, {victim});
    // The same memory goes on in the new communicator while the stopped rank, which knew where it was, wakes.
    reduce_and_check(made, 20);
    if (group.rank() == 2) kill(pids[static_cast<std::size_t>(victim)], SIGCONT);
    reduce_and_check(made, 2000);
    expect_success(twCommDestroy(comm), "twCommDestroy");
    expect_success(twCommDestroy(made), "twCommDestroy");
    return std::string{};
  });
  for (const RankResult& result : results) EXPECT_EQ(result.exit_code, 0) << result.text;
  const std::string& told = results[static_cast<std::size_t>(victim)].text;
  EXPECT_NE(told.find("gave this rank up"), std::string::npos) << told;
}

INSTANTIATE_TEST_SUITE_P(OfRank, ShrinkWhileStopped, ::testing::Values(0, 1));

TEST(Shrink, EndsWhatIsUnderWayWhereThatIsAsked) {
  const auto results = run_ranks(3, [](bootstrap::Group& group) {
    twComm_t comm = init_rank(group);
    reduce_and_check(comm, 2);
    if (group.rank() == 2) {
      // It calls nothing any more, and the others do not want to wait for it.
      std::this_thread::sleep_for(std::chrono::milliseconds{800});
      std::vector<float> data(8, 1.0F);
      expect(reduce(comm, data), twRemoteError, "an operation of an excluded rank", comm);
      expect_success(twCommDestroy(comm), "twCommDestroy");
      return std::string{};
    }
    std::vector<float> data(kShrinkCount, 1.0F);
    std::thread worker{[&] { static_cast<void>(reduce(comm, data)); }};
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    const Ps begun = monotonic_now();
    twComm_t made = shrink(comm, {2}, TW_SHRINK_ABORT);
    worker.join();
    if (monotonic_now() - begun > kSecond) throw Error{"the shrink", "took long"};
    reduce_and_check(made, 20);
    expect_success(twCommDestroy(comm), "twCommDestroy");
    expect_success(twCommDestroy(made), "twCommDestroy");
    return std::string{};
  });
  EXPECT_EQ(problems(results), "");
}

TEST(Shrink, WorksAfterAnAbortAndAfterAShrinkThatFailed) {
  const auto results = run_ranks(3, [](bootstrap::Group& group) {
    setenv("TENSORWIRE_BOOTSTRAP_TIMEOUT", "2s", 1);
    twComm_t comm = init_rank(group);
    reduce_and_check(comm, 2);
    group.barrier();
    if (group.rank() == 2) kill(getpid(), SIGKILL);
    std::vector<float> data(kShrinkCount, 1.0F);
    while (reduce(comm, data) == twSuccess) continue;
    expect_success(twCommAbort(comm), "twCommAbort");
    // Without a word about rank 2 it is waited for, and missing.
    twComm_t made = nullptr;
    expect(twCommShrink(comm, nullptr, 0, &made, nullptr, TW_SHRINK_DEFAULT), twRemoteError, "with a dead rank", comm);
    if (made != nullptr) throw Error{"a communicator", "was made"};
    if (group.rank() == 0) expect_line(twGetLastError(comm), "rank 2 of 3 ");
    made = shrink(comm, {2});
    reduce_and_check(made, 20);
    expect_success(twCommDestroy(made), "twCommDestroy");
    expect_success(twCommDestroy(comm), "twCommDestroy");
    return std::string{};
  });
  for (const int rank : {0, 1}) EXPECT_EQ(results[static_cast<std::size_t>(rank)].exit_code, 0) << results[rank].text;
}

TEST(Shrink, RefusesWhatMakesNoSense) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    twComm_t comm = init_rank(group);
    twComm_t made = nullptr;
    const auto refused = [&](std::vector<int> excluded, const std::string& why, int flags = TW_SHRINK_DEFAULT) {
      const auto count = static_cast<int>(excluded.size());
      expect(twCommShrink(comm, excluded.data(), count, &made, nullptr, flags), twInvalidArgument, why.c_str(), comm);
      expect_line(twGetLastError(comm), why);
    };
    refused({2}, "there are ranks 0 to 1");
    refused({-1}, "there are ranks 0 to 1");
    refused({group.rank()}, "that is this rank itself");
    refused({1 - group.rank(), 1 - group.rank()}, "it is given twice");
    refused({}, "there are no flags 8", 8);
    expect(twCommShrink(comm, nullptr, 1, &made, nullptr, 0), twInvalidArgument, "a null list", comm);
    expect(twCommShrink(comm, nullptr, 0, nullptr, nullptr, 0), twInvalidArgument, "a null pointer", comm);
    expect_success(twGroupStart(), "twGroupStart");
    expect(twCommShrink(comm, nullptr, 0, &made, nullptr, 0), twInvalidUsage, "in a group", comm);
    expect_success(twGroupEnd(), "twGroupEnd");
    reduce_and_check(comm, 2);
    expect_success(twCommFinalize(comm), "twCommFinalize");
    expect(twCommShrink(comm, nullptr, 0, &made, nullptr, 0), twInvalidUsage, "when finalized", comm);
    expect_success(twCommDestroy(comm), "twCommDestroy");
    return std::string{};
  });
  EXPECT_EQ(problems(results), "");
}

}  // namespace
}  // namespace tensorwire::comm
