// Which ranks are on which host, and whether an all-reduce can go inside hosts first.
#include "comm/gpu/hosts.hpp"

#include <gtest/gtest.h>

#include <array>

namespace tensorwire::comm {
namespace {

TEST(Hosts, StandInTheOrderOfTheirFirstRanks) {
  const std::array<std::uint64_t, 6> identities{9, 4, 9, 4, 7, 7};
  const Hosts hosts = hosts_of(identities);
  EXPECT_EQ(hosts, (Hosts{{0, 2}, {1, 3}, {4, 5}}));
  EXPECT_EQ(seat_of(hosts, 3).host, 1U);
  EXPECT_EQ(seat_of(hosts, 3).local, 1U);
  EXPECT_EQ(seat_of(hosts, 4).host, 2U);
  EXPECT_EQ(seat_of(hosts, 4).local, 0U);
}

TEST(Hosts, AreHierarchicalWhenSeveralHaveAsManyRanks) {
  EXPECT_EQ(why_not_hierarchical({{0, 1}, {2, 3}}), "");
  EXPECT_EQ(why_not_hierarchical({{0, 1, 2, 3}}), "all ranks are on one host");
  EXPECT_EQ(why_not_hierarchical({{0}, {1}}), "every rank is on a host of its own");
  EXPECT_EQ(why_not_hierarchical({{0, 1}, {2}}), "there are 1 ranks on the host of rank 2 and 2 on that of rank 0");
}

}  // namespace
}  // namespace tensorwire::comm
