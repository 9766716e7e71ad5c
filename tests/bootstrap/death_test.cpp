// Ranks as processes that are killed: everyone else knows within a second, and knows who.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "ranks.hpp"

namespace tensorwire::bootstrap::testing {
namespace {

class Deaths : public ::testing::TestWithParam<int> {};

/// Milliseconds in "rank 2 after 17 ms: ...".
int milliseconds_of(const std::string& failure) {
  const std::size_t at = failure.find("after ");
  return at == std::string::npos ? -1 : std::atoi(failure.c_str() + at + 6);
}

TEST_P(Deaths, AKilledRankIsNamedByAllWithinASecond) {
  constexpr int kRanks = 4;
  const int victim = GetParam();
  const std::uint16_t port = free_ports();
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back(options_of(rank, kRanks, port), [](Group& group) {
      group.barrier();
      return await_failure(group);
    });
  }
  for (const RankProcess& rank : ranks) rank.wait_joined();
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  ranks[static_cast<std::size_t>(victim)].kill();
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == victim) continue;
    const std::string words = ranks[static_cast<std::size_t>(rank)].last_words();
    EXPECT_EQ(words.find("rank " + std::to_string(victim) + " after"), 0U) << words;
    EXPECT_NE(words.find("process died"), std::string::npos) << words;
    EXPECT_LT(milliseconds_of(words), 1000) << words;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryRank, Deaths, ::testing::Range(0, 4));

TEST(Deaths, ACallUnderWayEndsWithTheNameOfTheDead) {
  const std::uint16_t port = free_ports();
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back(options_of(rank, 3, port), [](Group& group) -> std::string {
      if (group.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::seconds{20});
        return "survived";
      }
      group.barrier();
      return "no error";
    });
  }
  for (const RankProcess& rank : ranks) rank.wait_joined();
  ranks[1].kill();
  for (const std::size_t rank : {0U, 2U}) {
    const std::string words = ranks[rank].last_words();
    EXPECT_NE(words.find("rank 1 on"), std::string::npos) << words;
    EXPECT_NE(words.find("failed"), std::string::npos) << words;
  }
}

TEST(Deaths, AtTheRendezvousEndsItForAll) {
  const std::uint16_t port = free_ports();
  std::vector<RankProcess> ranks;
  for (const int rank : {0, 1, 2}) {
    ranks.emplace_back(options_of(rank, 4, port),
                       [](Group&) -> std::string { return "joined a world that is not full"; });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds{700});
  ranks[1].kill();
  for (const std::size_t rank : {0U, 2U}) {
    const std::string words = ranks[rank].last_words();
    EXPECT_NE(words.find("rank 1 on"), std::string::npos) << words;
    EXPECT_NE(words.find("rank 3 of 4 was still missing"), std::string::npos) << words;
  }
}

}  // namespace
}  // namespace tensorwire::bootstrap::testing
