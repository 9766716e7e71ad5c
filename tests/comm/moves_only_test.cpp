// A communicator that only moves: what it brings, and what it leaves to its caller.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "comm/rank_processes.hpp"

namespace tensorwire::comm {
namespace {

using collective::Collective;
using collective::DType;

constexpr std::size_t kMost = 70'000;

std::int32_t value(int rank, std::size_t turn, std::size_t i) {
  return static_cast<std::int32_t>(static_cast<std::size_t>(rank) * 100'000'000 + turn * 100'000 + i);
}

/// Alternating between two windows, as a GPU's proxy does.
std::string gather_and_exchange(bootstrap::Group& group) {
  CommOptions options = soft_options();
  options.moves_only = true;
  const auto comm = Communicator::create(group, options);
  const auto ranks = static_cast<std::size_t>(group.world_size());
  const auto me = static_cast<std::size_t>(group.rank());
  std::vector<std::int32_t> in(2 * ranks * kMost), out(2 * ranks * kMost);
  for (std::size_t turn = 0; turn < 200; ++turn) {
    const std::size_t count = turn % 5 == 4 ? kMost : 4 + turn % 3 * 1000;
    std::int32_t* const from = in.data() + turn % 2 * ranks * kMost;
    std::int32_t* const to = out.data() + turn % 2 * ranks * kMost;
    Call call;
    call.out = to;
    call.count = count;
    call.dtype = DType::kInt32;
    const bool gathers = turn % 4 < 2;
    call.collective = gathers ? Collective::kAllGather : Collective::kAllToAll;
    call.in = gathers ? to + me * count : from;
    for (std::size_t i = 0; i < ranks * count; ++i) from[i] = value(group.rank(), turn, i);
    if (gathers) std::memcpy(to + me * count, from, count * sizeof *to);
    if (!gathers) std::memset(to + me * count, 0xff, count * sizeof *to);
    if (!comm->run(call)) return comm->error()->line;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (std::size_t i = 0; i < count; ++i) {
        const std::int32_t theirs = value(static_cast<int>(rank), turn, gathers ? i : me * count + i);
        const std::int32_t expected = rank == me && !gathers ? -1 : theirs;
        if (to[rank * count + i] != expected) {
          return "turn " + std::to_string(turn) + ", element " + std::to_string(i) + " of rank " + std::to_string(rank);
        }
      }
    }
  }
  if (comm->all_reduce(in.data(), out.data(), 4, DType::kInt32)) return "it reduced";
  return comm->stats().runner.bytes_copied == 0 ? "right" : "the CPU copied";
}

class MovesOnly : public ::testing::TestWithParam<int> {};

TEST_P(MovesOnly, BringsTheBlocksOfOthersAndLeavesItsOwn) {
  for (const RankResult& rank : run_ranks(GetParam(), gather_and_exchange)) EXPECT_EQ(rank.text, "right");
}

INSTANTIATE_TEST_SUITE_P(Ranks, MovesOnly, ::testing::Values(2, 3, 4));

}  // namespace
}  // namespace tensorwire::comm
