// What goes wrong between ranks ends on every survivor in one line that names the rank, within its bound.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "rank_processes.hpp"
#include "tensors.hpp"

namespace tensorwire::comm {
namespace {

/// All-reduces until one fails; throws its line. `before(i)` runs before the i-th.
void reduce_until_failure(Communicator& comm, std::size_t count, const std::function<void(int)>& before) {
  std::vector<float> data(count, 1.0F);
  for (int i = 0; i < 100'000; ++i) {
    before(i);
    if (!comm.all_reduce(data.data(), data.data(), count, DType::kFloat32)) {
      if (comm.all_reduce(data.data(), data.data(), count, DType::kFloat32)) throw Error{"error", "not sticky"};
      throw Error{fmt::format("[{}]", comm.error()->peer), comm.error()->line};
    }
  }
  throw Error{"all-reduce", "it never failed"};
}

TEST(Failure, DisagreementOnTheCountNamesRankAndField) {
  const auto results = run_ranks(3, [](bootstrap::Group& group) {
    const auto comm = Communicator::create(group, soft_options());
    std::vector<float> data(65'536, 7.0F);
    const std::size_t count = group.rank() == 1 ? 30'000 : 40'000;
    if (!comm->all_reduce(data.data(), data.data(), 1000, DType::kFloat32)) throw Error{"first", comm->error()->line};
    if (comm->all_reduce(data.data() + 1000, data.data() + 1000, count, DType::kFloat32)) throw Error{"it", "passed"};
    for (std::size_t i = 1000; i < data.size(); ++i) {
      if (data[i] != 7.0F) throw Error{"user memory", "was written"};
    }
    return fmt::format("[{}] {}", comm->error()->peer, comm->error()->line);
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(results[rank].exit_code, 0) << results[rank].text;
    if (rank == 1) continue;
    EXPECT_TRUE(results[rank].text.starts_with("[1] ")) << results[rank].text;
    EXPECT_NE(results[rank].text.find("rank 1 disagrees on the element count: 30000 there, 40000 here"),
              std::string::npos)
        << results[rank].text;
  }
}

TEST(Failure, AKilledRankIsNamedWithinThreeSeconds) {
  for (const PathChoice path : {PathChoice::kAuto, PathChoice::kPackets}) {
    const Ps start = monotonic_now();
    const auto results = run_ranks(3, [&](bootstrap::Group& group) {
      CommOptions options = soft_options();
      options.path = path;
      const auto comm = Communicator::create(group, options);
      reduce_until_failure(*comm, 50'000, [&](int i) {
        if (group.rank() == 1 && i == 20) kill(getpid(), SIGKILL);
      });
      return std::string{};
    });
    EXPECT_EQ(results[1].exit_code, 128 + SIGKILL);
    for (const int rank : {0, 2}) {
      EXPECT_EQ(results[rank].exit_code, 1);
      EXPECT_TRUE(results[rank].text.starts_with("[1]")) << results[rank].text;
      EXPECT_NE(results[rank].text.find("rank 1 on "), std::string::npos) << results[rank].text;
    }
    EXPECT_LT(monotonic_now() - start, 6 * kSecond) << "start-up and all";
  }
}

TEST(Failure, ARankThatStopsCallingIsATimeoutThatNamesIt) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    CommOptions options = soft_options();
    options.operation_timeout = 700 * kMillisecond;
    options.straggler_warning = 0;
    const auto comm = Communicator::create(group, options);
    reduce_until_failure(*comm, 100, [&](int i) {
      if (group.rank() == 1 && i == 3) std::this_thread::sleep_for(std::chrono::milliseconds{1500});
    });
    return std::string{};
  });
  EXPECT_TRUE(results[0].text.starts_with("[1]")) << results[0].text;
  EXPECT_NE(results[0].text.find("not over within 0.7 s; waiting for rank 1"), std::string::npos) << results[0].text;
  EXPECT_TRUE(results[1].text.starts_with("[0]")) << results[1].text;
  EXPECT_NE(results[1].text.find("waiting for rank 1"), std::string::npos)
      << "the others learn why: " << results[1].text;
}

CommOptions ring_options(Ps timeout) {
  CommOptions options = soft_options();
  options.thresholds.ring_bytes = 0;
  options.operation_timeout = timeout;
  return options;
}

TEST(Failure, ARankThatHangsInARingIsNamedByAllWithItsLastActNotItsNeighbour) {
  const auto results = run_ranks(4, [](bootstrap::Group& group) {
    const auto comm = Communicator::create(group, ring_options(700 * kMillisecond));
    reduce_until_failure(*comm, 50'000, [&](int i) {
      if (group.rank() == 1 && i == 3) std::this_thread::sleep_for(std::chrono::milliseconds{1500});
    });
    return std::string{};
  });
  for (const int rank : {0, 2, 3}) {
    const std::string& text = results[static_cast<std::size_t>(rank)].text;
    EXPECT_TRUE(text.starts_with("[1]")) << text;
    EXPECT_NE(text.find("it finished all-reduce 2 (200000 bytes) 0."), std::string::npos) << text;
  }
}

/// Rank 0 passes all news on; without it every rank is on its own.
TEST(Failure, AStoppedRankZeroIsNamedByAllInARing) {
  const auto results = run_ranks(
      4,
      [](bootstrap::Group& group) {
        const auto comm = Communicator::create(group, ring_options(2 * kSecond));
        reduce_until_failure(*comm, 50'000, [&](int i) {
          if (group.rank() == 0 && i == 3) raise(SIGSTOP);
        });
        return std::string{};
      },
      5 * kSecond);
  for (const int rank : {1, 2, 3}) {
    const RankResult& result = results[static_cast<std::size_t>(rank)];
    EXPECT_EQ(result.exit_code, 1) << result.text;
    EXPECT_TRUE(result.text.starts_with("[0]")) << result.text;
  }
}

TEST(Failure, AbortFromAnotherThreadEndsAllRanks) {
  const auto results = run_ranks(3, [](bootstrap::Group& group) {
    const auto comm = Communicator::create(group, soft_options());
    std::thread aborter;
    if (group.rank() == 2) {
      aborter = std::thread{[&] {
        std::this_thread::sleep_for(std::chrono::milliseconds{200});
        comm->abort("the request was cancelled");
      }};
    }
    std::string line;
    try {
      reduce_until_failure(*comm, 1000, [](int) {});
    } catch (const Error& error) {
      line = error.what();
    }
    if (aborter.joinable()) aborter.join();
    return line;
  });
  for (const RankResult& result : results) {
    EXPECT_NE(result.text.find("the request was cancelled"), std::string::npos) << result.text;
  }
}

TEST(Failure, OptionsThatDisagreeAreNamedAtSetUp) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    CommOptions options = soft_options();
    if (group.rank() == 1) options.slot_payload_bytes = 1024;
    static_cast<void>(Communicator::create(group, options));
    return std::string{};
  });
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_NE(results[0].text.find("rank 1"), std::string::npos) << results[0].text;
  EXPECT_NE(results[0].text.find("its slot size is 1024, here it is 262144"), std::string::npos) << results[0].text;
}

}  // namespace
}  // namespace tensorwire::comm
