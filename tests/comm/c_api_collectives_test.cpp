// Every collective, messages, groups, splits and windows, through libtensorwire.so, against values computed by hand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "c_api_ranks.hpp"

namespace tensorwire::comm {
namespace {

using Ints = std::vector<std::int32_t>;

/// What element i of rank r is.
std::int32_t at(int r, std::size_t i) {
  return static_cast<std::int32_t>(r * 1'000'000 + static_cast<int>(i % 999'983));
}

Ints input_of_rank(int r, std::size_t count) {
  Ints values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = at(r, i);
  return values;
}

void expect_equal(const Ints& got, const Ints& wanted, const char* what) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (got[i] != wanted[i]) throw Error{what, fmt::format("element {} is {}, not {}", i, got[i], wanted[i])};
  }
}

constexpr std::size_t kCounts[] = {0, 1, 7, 1000, 50'000, 270'003};  // the last goes into windows

void check_reductions(twComm_t comm, int rank, int ranks, std::size_t count) {
  const std::size_t n = static_cast<std::size_t>(ranks);
  const Ints in = input_of_rank(rank, count);
  Ints sum(count), top(count), mean(count), wanted_sum(count), wanted_top(count), wanted_mean(count);
  for (std::size_t i = 0; i < count; ++i) {
    for (int r = 0; r < ranks; ++r) wanted_sum[i] += at(r, i);
    wanted_top[i] = at(ranks - 1, i);
    wanted_mean[i] = wanted_sum[i] / ranks;
  }
  expect_success(twAllReduce(in.data(), sum.data(), count, twInt32, twSum, comm, nullptr), "twAllReduce", comm);
  expect_equal(sum, wanted_sum, "sum");
  expect_success(twAllReduce(in.data(), top.data(), count, twInt32, twMax, comm, nullptr), "twAllReduce", comm);
  expect_equal(top, wanted_top, "max");
  mean = in;
  expect_success(twAllReduce(mean.data(), mean.data(), count, twInt32, twAvg, comm, nullptr), "twAllReduce", comm);
  expect_equal(mean, wanted_mean, "average, in place");

  Ints blocks = input_of_rank(rank, count * n);
  Ints wanted(count);
  for (std::size_t i = 0; i < count; ++i) {
    for (int r = 0; r < ranks; ++r) wanted[i] += at(r, static_cast<std::size_t>(rank) * count + i);
  }
  Ints out(count);
  expect_success(twReduceScatter(blocks.data(), out.data(), count, twInt32, twSum, comm, nullptr), "twReduceScatter",
                 comm);
  expect_equal(out, wanted, "reduce-scatter");
  std::int32_t* own = blocks.data() + static_cast<std::size_t>(rank) * count;
  expect_success(twReduceScatter(blocks.data(), own, count, twInt32, twSum, comm, nullptr), "twReduceScatter", comm);
  expect_equal(Ints(own, own + count), wanted, "reduce-scatter in place");
}

void check_moves(twComm_t comm, int rank, int ranks, std::size_t count) {
  const std::size_t n = static_cast<std::size_t>(ranks);
  const Ints in = input_of_rank(rank, count);
  Ints wanted(count * n);
  for (std::size_t k = 0; k < count * n; ++k) wanted[k] = at(static_cast<int>(k / count), k % count);
  Ints all(count * n, -1);
  expect_success(twAllGather(in.data(), all.data(), count, twInt32, comm, nullptr), "twAllGather", comm);
  expect_equal(all, wanted, "all-gather");
  std::fill(all.begin(), all.end(), -1);
  std::int32_t* own = all.data() + static_cast<std::size_t>(rank) * count;
  std::copy(in.begin(), in.end(), own);
  expect_success(twAllGather(own, all.data(), count, twInt32, comm, nullptr), "twAllGather", comm);
  expect_equal(all, wanted, "all-gather in place");

  for (int root = 0; root < ranks; ++root) {
    Ints data = rank == root ? in : Ints(count, -1);
    expect_success(twBroadcast(rank == root ? data.data() : nullptr, data.data(), count, twInt32, root, comm, nullptr),
                   "twBroadcast", comm);
    expect_equal(data, input_of_rank(root, count), "broadcast");
  }

  const Ints blocks = input_of_rank(rank, count * n);
  for (std::size_t k = 0; k < count * n; ++k) {
    wanted[k] = at(static_cast<int>(k / count), static_cast<std::size_t>(rank) * count + k % count);
  }
  std::fill(all.begin(), all.end(), -1);
  expect_success(twAllToAll(blocks.data(), all.data(), count, twInt32, comm, nullptr), "twAllToAll", comm);
  expect_equal(all, wanted, "all-to-all");
  all = blocks;
  expect_success(twAllToAll(all.data(), all.data(), count, twInt32, comm, nullptr), "twAllToAll", comm);
  expect_equal(all, wanted, "all-to-all in place");
}

TEST(CApiCollectives, EachIsRightForAwkwardCountsAndRanks) {
  for (const int ranks : {1, 2, 3, 5}) {
    const auto results = run_ranks(ranks, [&](bootstrap::Group& group) {
      twComm_t comm = init_rank(group);
      for (const std::size_t count : kCounts) {
        check_reductions(comm, group.rank(), ranks, count);
        check_moves(comm, group.rank(), ranks, count);
        expect_success(twBarrier(comm, nullptr), "twBarrier", comm);
      }
      expect_success(twCommDestroy(comm), "twCommDestroy");
      return std::string{};
    });
    EXPECT_EQ(problems(results), "") << ranks << " ranks";
  }
}

TEST(CApiCollectives, AllToAllWithCountsThatDiffer) {
  const auto results = run_ranks(3, [](bootstrap::Group& group) {
    twComm_t comm = init_rank(group);
    const int rank = group.rank();
    const std::vector<std::size_t> counts{0, 70'001, 3, 5, 1, 0, 100'000, 0, 2};
    const auto count = [&](int i, int j) { return counts[static_cast<std::size_t>(i * 3 + j)]; };
    Ints in, wanted;
    for (int j = 0; j < 3; ++j) {
      for (std::size_t i = 0; i < count(rank, j); ++i) in.push_back(at(rank * 10 + j, i));
      for (std::size_t i = 0; i < count(j, rank); ++i) wanted.push_back(at(j * 10 + rank, i));
    }
    for (int round = 0; round < 3; ++round) {
      Ints out(wanted.size(), -1);
      expect_success(twAllToAllv(in.data(), out.data(), counts.data(), twInt32, comm, nullptr), "twAllToAllv", comm);
      expect_equal(out, wanted, "all-to-all-v");
    }
    expect_success(twCommDestroy(comm), "twCommDestroy");
    return std::string{};
  });
  EXPECT_EQ(problems(results), "");
}

TEST(CApiCollectives, MessagesOfAGroupCrossWithoutDeadlock) {
  // Every rank sends to every other, itself included, and names the sends first: far more than slots can hold.
  const auto results = run_ranks(3, [](bootstrap::Group& group) {
    twComm_t comm = init_rank(group);
    const int rank = group.rank();
    for (const std::size_t count : {std::size_t{0}, std::size_t{5}, std::size_t{500'000}}) {
      std::vector<Ints> out(3), in(3, Ints(count, -1));
      expect_success(twGroupStart(), "twGroupStart");
      for (int peer = 0; peer < 3; ++peer) {
        out[static_cast<std::size_t>(peer)] = input_of_rank(rank * 3 + peer, count);
        expect_success(twSend(out[static_cast<std::size_t>(peer)].data(), count, twInt32, peer, comm, nullptr),
                       "twSend", comm);
      }
      for (int peer = 0; peer < 3; ++peer) {
        expect_success(twRecv(in[static_cast<std::size_t>(peer)].data(), count, twInt32, peer, comm, nullptr), "twRecv",
                       comm);
      }
      expect_success(twGroupEnd(), "twGroupEnd", comm);
      for (int peer = 0; peer < 3; ++peer) {
        expect_equal(in[static_cast<std::size_t>(peer)], input_of_rank(peer * 3 + rank, count), "exchange");
      }
    }
    expect_success(twCommDestroy(comm), "twCommDestroy");
    return std::string{};
  });
  EXPECT_EQ(problems(results), "");
}

TEST(CApiCollectives, APipelineOfMessagesBetweenCollectives) {
  const auto results = run_ranks(3, [](bootstrap::Group& group) {
    twComm_t comm = init_rank(group);
    const int rank = group.rank();
    for (int round = 0; round < 20; ++round) {
      Ints data(static_cast<std::size_t>(1 + round * 9973), 0);
      if (rank == 0) data = input_of_rank(round, data.size());
      if (rank > 0) expect_success(twRecv(data.data(), data.size(), twInt32, rank - 1, comm, nullptr), "twRecv", comm);
      if (rank < 2) expect_success(twSend(data.data(), data.size(), twInt32, rank + 1, comm, nullptr), "twSend", comm);
      expect_equal(data, input_of_rank(round, data.size()), "pipeline");
      std::int32_t one = 1;
      expect_success(twAllReduce(&one, &one, 1, twInt32, twSum, comm, nullptr), "twAllReduce", comm);
      if (one != 3) throw Error{"all-reduce", "wrong"};
    }
    expect_success(twCommDestroy(comm), "twCommDestroy");
    return std::string{};
  });
  EXPECT_EQ(problems(results), "");
}

TEST(CApiCollectives, AGroupOverSeveralCommunicatorsInAnyOrder) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    twComm_t comms[2] = {init_rank(group), init_rank(group)};
    const std::size_t count = 100'000;
    std::vector<Ints> data{input_of_rank(group.rank(), count), input_of_rank(group.rank() + 7, count)};
    expect_success(twGroupStart(), "twGroupStart");
    for (int k = 0; k < 2; ++k) {
      const std::size_t which = static_cast<std::size_t>(group.rank() == 0 ? k : 1 - k);
      Ints& tensor = data[which];
      expect_success(twAllReduce(tensor.data(), tensor.data(), count, twInt32, twSum, comms[which], nullptr),
                     "queue it", comms[which]);
    }
    expect(twAllReduce(nullptr, data[0].data(), count, twInt32, twSum, comms[0], nullptr), twInvalidArgument,
           "checked at the call", comms[0]);
    expect_success(twGroupEnd(), "twGroupEnd", comms[0]);
    for (std::size_t i = 0; i < count; ++i) {
      if (data[0][i] != at(0, i) + at(1, i) || data[1][i] != at(7, i) + at(8, i)) throw Error{"group", "wrong sum"};
    }
    expect(twGroupEnd(), twInvalidUsage, "no group is open");
    for (twComm_t comm : comms) expect_success(twCommDestroy(comm), "twCommDestroy");
    return std::string{};
  });
  EXPECT_EQ(problems(results), "");
}

TEST(CApiCollectives, OneThreadMakesAndUsesSeveralRanks) {
  setenv("TENSORWIRE_SOFT_LIBRARY", TW_SOFT_LIBRARY, 1);
  twUniqueId id{};
  ASSERT_EQ(twGetUniqueId(&id), twSuccess);
  const twConfig_t config = soft_config();
  twComm_t comms[3] = {};
  ASSERT_EQ(twGroupStart(), twSuccess);
  for (int rank = 0; rank < 3; ++rank) ASSERT_EQ(twCommInitRankConfig(&comms[rank], 3, id, rank, &config), twSuccess);
  ASSERT_EQ(twGroupEnd(), twSuccess) << twGetLastError(nullptr);
  Ints data(3);
  ASSERT_EQ(twGroupStart(), twSuccess);
  for (int rank = 0; rank < 3; ++rank) {
    data[static_cast<std::size_t>(rank)] = 1 << rank;
    std::int32_t* value = &data[static_cast<std::size_t>(rank)];
    ASSERT_EQ(twAllReduce(value, value, 1, twInt32, twSum, comms[rank], nullptr), twSuccess);
  }
  ASSERT_EQ(twGroupEnd(), twSuccess) << twGetLastError(comms[0]);
  EXPECT_EQ(data, (Ints{7, 7, 7}));
  std::vector<std::thread> ends;
  for (twComm_t comm : comms) ends.emplace_back([comm] { EXPECT_EQ(twCommDestroy(comm), twSuccess); });
  for (std::thread& end : ends) end.join();
}

TEST(CApiCollectives, SplitMakesCommunicatorsByColorAndKey) {
  const auto results = run_ranks(4, [](bootstrap::Group& group) {
    twComm_t comm = init_rank(group);
    const int rank = group.rank();
    twComm_t part = nullptr;
    // Ranks 0, 2 and 3 in reverse order; rank 1 takes no part.
    const int color = rank == 1 ? TW_SPLIT_NOCOLOR : 5;
    expect_success(twCommSplit(comm, color, -rank, &part, nullptr), "twCommSplit", comm);
    std::string text = "none";
    if (part != nullptr) {
      int size = 0, place = -1;
      expect_success(twCommCount(part, &size), "twCommCount", part);
      expect_success(twCommUserRank(part, &place), "twCommUserRank", part);
      std::int32_t sum = 1 << rank;
      expect_success(twAllReduce(&sum, &sum, 1, twInt32, twSum, part, nullptr), "twAllReduce", part);
      text = fmt::format("{} of {}: {}", place, size, sum);
    }
    std::int32_t all = 1;
    expect_success(twAllReduce(&all, &all, 1, twInt32, twSum, comm, nullptr), "the parent goes on", comm);
    expect_success(twCommDestroy(part), "twCommDestroy");
    expect_success(twCommDestroy(comm), "twCommDestroy");
    return text;
  });
  EXPECT_EQ(problems(results), "");
  EXPECT_EQ(results[3].text, "0 of 3: 13");
  EXPECT_EQ(results[2].text, "1 of 3: 13");
  EXPECT_EQ(results[0].text, "2 of 3: 13");
  EXPECT_EQ(results[1].text, "none");
}

TEST(CApiCollectives, LargeAllReducesNeedNoCopyOfTheCpu) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    twComm_t comm = init_rank(group);
    const std::size_t count = 1'000'003;
    void* memory = nullptr;
    expect_success(twMemAlloc(&memory, count * 4), "twMemAlloc");
    twWindow_t window = nullptr;
    expect_success(twCommWindowRegister(comm, memory, count * 4, &window, TW_WINDOW_DEFAULT), "twCommWindowRegister",
                   comm);
    auto* data = static_cast<std::int32_t*>(memory);
    Ints out(count);  // and memory that nobody announced
    for (int round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < count; ++i) data[i] = at(group.rank() + round, i);
      expect_success(twAllReduce(data, round == 1 ? out.data() : data, count, twInt32, twSum, comm, nullptr),
                     "twAllReduce", comm);
      const std::int32_t* sums = round == 1 ? out.data() : data;
      for (std::size_t i = 0; i < count; ++i) {
        if (sums[i] != at(round, i) + at(round + 1, i))
          throw Error{"all-reduce", fmt::format("element {} is wrong", i)};
      }
    }
    twStats_t stats{};
    expect_success(twCommGetStats(comm, &stats), "twCommGetStats", comm);
    expect_success(twCommWindowDeregister(comm, window), "twCommWindowDeregister", comm);
    expect_success(twCommForget(comm, out.data(), count * 4), "twCommForget", comm);
    expect_success(twCommDestroy(comm), "twCommDestroy");
    expect_success(twMemFree(memory), "twMemFree");
    return fmt::format("{} operations, {} bytes, {} copied", stats.operations, stats.bytes, stats.bytesCopied);
  });
  EXPECT_EQ(problems(results), "");
  EXPECT_EQ(results[0].text, "3 operations, 12000036 bytes, 0 copied");
}

TEST(CApiCollectives, LargeMovesNeedNoCopyOfTheCpuButTheOwnBlock) {
  const auto results = run_ranks(3, [](bootstrap::Group& group) {
    twComm_t comm = init_rank(group);
    constexpr std::size_t kCount = 1'200'003;  // several segments
    check_moves(comm, group.rank(), 3, kCount);
    twStats_t stats{};
    expect_success(twCommGetStats(comm, &stats), "twCommGetStats", comm);
    expect_success(twCommDestroy(comm), "twCommDestroy");
    // Out of place: all-gather and all-to-all. In place, an all-to-all moves its whole input and then its own block.
    return fmt::format("{} blocks copied", static_cast<double>(stats.bytesCopied) / (4 * kCount));
  });
  EXPECT_EQ(problems(results), "");
  for (const RankResult& result : results) EXPECT_EQ(result.text, "6 blocks copied");
}

TEST(CApiCollectives, TheOrderOfSummationCanBeDemandedByAllOrNobody) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    twConfig_t config = soft_config();
    config.order = 3;
    twComm_t comm = nullptr;
    const auto init = [&] { return twCommInitRankConfig(&comm, 2, shared_id(group), group.rank(), &config); };
    expect(init(), twInvalidArgument, "an order that does not exist");
    const std::string unknown = twGetLastError(nullptr);
    config.order = group.rank() == 0 ? twOrderRank : twOrderAny;
    expect(init(), twSystemError, "orders that differ");
    return unknown + "; " + twGetLastError(nullptr);
  });
  EXPECT_EQ(problems(results), "");
  EXPECT_NE(results[0].text.find("order is 3; 0 to 2 is possible"), std::string::npos) << results[0].text;
  EXPECT_NE(results[0].text.find("order of summation"), std::string::npos) << results[0].text;
}

TEST(CApiCollectives, RanksThatMakeDifferentCallsAreTold) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    twComm_t comm = init_rank(group);
    Ints in(8, 1), out(16, -1);
    const twResult_t result = group.rank() == 0 ? twAllReduce(in.data(), out.data(), 8, twInt32, twSum, comm, nullptr)
                                                : twAllGather(in.data(), out.data(), 8, twInt32, comm, nullptr);
    expect(result, twDisagreement, "the result", comm);
    if (out != Ints(16, -1)) throw Error{"user memory", "was written"};
    const std::string line = twGetLastError(comm);
    expect_success(twCommDestroy(comm), "twCommDestroy");
    return line;
  });
  EXPECT_EQ(problems(results), "");
  EXPECT_NE(results[0].text.find("rank 1 disagrees on the collective: all-gather there, all-reduce here"),
            std::string::npos)
      << results[0].text;
}

}  // namespace
}  // namespace tensorwire::comm
