// Rounds of a full mesh: each pair once, nobody twice in a round, no more rounds than needed.
#include <gtest/gtest.h>

#include <set>

#include "cli/mesh/schedule.hpp"

namespace tensorwire::cli {
namespace {

TEST(MeshSchedule, EachPairOnceInDisjointRounds) {
  for (std::size_t hosts = 0; hosts <= 33; ++hosts) {
    std::set<MeshPair> met;
    const auto rounds = mesh_rounds(hosts);
    EXPECT_EQ(hosts < 2 ? 0 : hosts - 1 + hosts % 2, rounds.size()) << hosts;
    for (const auto& round : rounds) {
      std::set<std::size_t> busy;
      for (const auto& [a, b] : round) {
        EXPECT_LT(a, b);
        EXPECT_LT(b, hosts);
        EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second) << hosts;
        EXPECT_TRUE(met.emplace(a, b).second) << hosts;
      }
    }
    EXPECT_EQ(hosts < 2 ? 0 : hosts * (hosts - 1) / 2, met.size());
  }
}

}  // namespace
}  // namespace tensorwire::cli
