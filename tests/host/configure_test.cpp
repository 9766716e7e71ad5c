// What differs and which commands mend it, for ports of every family; what reads and writes them is tested from outside
// (tests/e2e/test_configure.py).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "host/configure/difference.hpp"

namespace tensorwire::host {
namespace {

template <class T>
Fact<T> fact(T value) {
  return {std::move(value), "here"};
}

DcbApp no_apps() {
  DcbApp apps{};
  apps.priority_of_dscp.fill(-1);
  return apps;
}

/// A port as its driver leaves it after boot.
PortState fresh(const char* driver, bool ofed = false) {
  PortState state;
  state.netdev = "eth2";
  state.driver = fact<std::string>(driver);
  state.ofed = ofed;
  state.device = "mlx5_0";
  state.mtu = fact(1500U);
  state.qos.host_controls = fact(true);
  state.qos.pause = fact(GlobalPause{true, true});
  state.qos.trust = fact(Trust::kPcp);
  state.apps = fact(no_apps());
  state.qos.traffic_class = fact(std::array<std::uint8_t, kPriorities>{1, 0, 2, 3, 4, 5, 6, 7});
  state.qos.pfc = fact(PrioritySet{});
  if (ofed) {
    state.qos.ecn_np = fact(PrioritySet{});
    state.qos.ecn_rp = fact(PrioritySet{0xff});
    state.qos.cnp_dscp = fact(0U);
  }
  state.cm_tos = fact(0U);
  state.numa_balancing = fact(1U);
  return state;
}

std::vector<std::string> lines(const std::vector<Action>& actions) {
  std::vector<std::string> all;
  for (const Action& action : actions) all.push_back(action.shell());
  return all;
}

const Change* find(const PortDifference& difference, Part part) {
  for (const Change& change : difference.changes) {
    if (change.part == part) return &change;
  }
  return nullptr;
}

using Lines = std::vector<std::string>;

TEST(Configure, AFreshMlx5PortNeedsAllOfIt) {
  const PortDifference difference = find_difference(fresh("mlx5_core"), {});
  ASSERT_EQ(difference.changes.size(), 6U);
  EXPECT_EQ(difference.changes.back().part, Part::kPfc) << "it takes the link down";
  EXPECT_TRUE(difference.flaps_link());
  EXPECT_TRUE(difference.refusals.empty());
  EXPECT_EQ(lines(find(difference, Part::kPfc)->set), Lines{"dcb pfc set dev eth2 prio-pfc all:off 3:on"});
  EXPECT_EQ(lines(find(difference, Part::kPause)->undo), Lines{"ethtool -A eth2 rx on tx on"});
  EXPECT_EQ(lines(find(difference, Part::kDscp)->undo), Lines{"dcb app del dev eth2 dscp-prio 26:3 48:6"});
  EXPECT_EQ(lines(find(difference, Part::kNumaBalancing)->set), Lines{"echo 0 >/proc/sys/kernel/numa_balancing"});
}

TEST(Configure, OnlyWhatDiffersIsChanged) {
  PortState state = fresh("mlx5_core");
  state.mtu = fact(9000U);
  state.qos.pause = fact(GlobalPause{});
  state.qos.trust = fact(Trust::kDscp);
  DcbApp apps = no_apps();
  apps.priority_of_dscp[26] = 3;
  apps.priority_of_dscp[48] = 6;
  state.apps = fact(apps);
  state.cm_tos = fact(104U);
  state.numa_balancing = fact(0U);
  state.qos.pfc = fact(PrioritySet{1U << 3});
  EXPECT_TRUE(find_difference(state, {}).changes.empty());

  state.qos.pfc = fact(PrioritySet{(1U << 3) | 1U});
  const PortDifference two = find_difference(state, {});
  ASSERT_EQ(two.changes.size(), 1U) << "a second lossless priority is one too many";
  EXPECT_EQ(two.changes[0].now, "0,3");
  EXPECT_EQ(lines(two.changes[0].undo), Lines{"dcb pfc set dev eth2 prio-pfc all:off 0:on 3:on"});
}

TEST(Configure, AnEntryThatWasThereIsPutBackAndOneThatWasNotIsRemoved) {
  PortState state = fresh("mlx5_core");
  state.qos.trust = fact(Trust::kDscp);
  DcbApp apps = no_apps();
  apps.priority_of_dscp[26] = 0;
  state.apps = fact(apps);
  const PortDifference difference = find_difference(state, {});
  EXPECT_EQ(lines(find(difference, Part::kDscp)->undo),
            (Lines{"dcb app del dev eth2 dscp-prio 48:6", "dcb app replace dev eth2 dscp-prio 26:0"}));
}

TEST(Configure, TheLosslessPriorityNeedsAQueueOfItsOwn) {
  PortState state = fresh("mlx5_core");
  state.qos.traffic_class = fact(std::array<std::uint8_t, kPriorities>{0, 0, 0, 0, 0, 0, 0, 0});
  const PortDifference difference = find_difference(state, {});
  ASSERT_NE(find(difference, Part::kTrafficClass), nullptr);
  EXPECT_EQ(lines(find(difference, Part::kTrafficClass)->undo),
            Lines{"dcb ets set dev eth2 prio-tc 0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0"});
}

TEST(Configure, MlnxOfedHasFilesForEcn) {
  const PortDifference difference = find_difference(fresh("mlx5_core", true), {});
  EXPECT_EQ(difference.recipe, "mlx5 with MLNX_OFED");
  ASSERT_NE(find(difference, Part::kEcnNp), nullptr);
  EXPECT_EQ(lines(find(difference, Part::kEcnNp)->set), Lines{"echo 1 >/sys/class/net/eth2/ecn/roce_np/enable/3"});
  EXPECT_EQ(lines(find(difference, Part::kEcnNp)->undo), Lines{"echo 0 >/sys/class/net/eth2/ecn/roce_np/enable/3"});
  EXPECT_EQ(find(difference, Part::kEcnRp), nullptr) << "it is on already";
  EXPECT_EQ(lines(find(difference, Part::kTrust)->undo), Lines{"mlnx_qos -i eth2 --trust pcp"});
  EXPECT_EQ(lines(find(difference, Part::kDscp)->set),
            (Lines{"mlnx_qos -i eth2 --dscp2prio set,26,3", "mlnx_qos -i eth2 --dscp2prio set,48,6"}));
  EXPECT_EQ(lines(find(difference, Part::kPfc)->set), Lines{"mlnx_qos -i eth2 --pfc 0,0,0,1,0,0,0,0"});
}

TEST(Configure, BroadcomsCnpsHaveAPriorityOfTheirOwnAndTheUdpPortCounts) {
  const PortDifference difference = find_difference(fresh("bnxt_en"), {});
  EXPECT_EQ(find(difference, Part::kDscp)->wanted, "26:3 48:7");
  EXPECT_EQ(lines(find(difference, Part::kUdpPort)->undo), Lines{"dcb app del dev eth2 dgram-port-prio 4791:3"});
}

TEST(Configure, OtherWishes) {
  Wanted wanted;
  wanted.priority = 4;
  wanted.dscp = 34;
  wanted.mtu = 1500;
  const PortDifference difference = find_difference(fresh("mlx5_core"), wanted);
  EXPECT_EQ(find(difference, Part::kMtu), nullptr);
  EXPECT_EQ(find(difference, Part::kDscp)->wanted, "34:4 48:6");
  EXPECT_EQ(find(difference, Part::kCmTos)->wanted, "136");
  EXPECT_EQ(find(difference, Part::kPfc)->wanted, "4");
}

TEST(Configure, WhatIsNotKnownIsSaidAndNotTouched) {
  PortState state = fresh("mlx5_core");
  state.qos.pfc = Fact<PrioritySet>::unknown("Operation not permitted (EPERM)", "dcb -j pfc show dev eth2");
  const PortDifference difference = find_difference(state, {});
  EXPECT_EQ(find(difference, Part::kPfc), nullptr);
  ASSERT_EQ(difference.unknown.size(), 2U);
  EXPECT_EQ(difference.unknown[1], "PFC: Operation not permitted (EPERM) (dcb -j pfc show dev eth2)");
}

TEST(Configure, WhatMayNotBeConfiguredSaysWhy) {
  EXPECT_EQ(find_difference(fresh("ice"), {}).refusals,
            Lines{"how a NIC of the driver ice is configured is not known"});
  PortState state = fresh("mlx5_core");
  state.virtual_function = true;
  state.lldpad = true;
  EXPECT_EQ(find_difference(state, {}).refusals.size(), 2U);
}

}  // namespace
}  // namespace tensorwire::host
