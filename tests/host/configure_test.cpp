// What differs and which commands mend it, for ports of every family; what reads and writes them is tested from outside
// (tests/e2e/test_configure.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "host/configure/difference.hpp"
#include "host/configure/traffic_classes.hpp"

namespace tensorwire::host {
namespace {

template <class T>
Fact<T> fact(T value) {
  return {std::move(value), "here"};
}

/// As wanted for mlx5's own map of priorities.
Ets shared_as_wanted() {
  Ets shares;
  shares.algorithm = {Tsa::kEts, Tsa::kEts, Tsa::kEts, Tsa::kEts, Tsa::kEts, Tsa::kEts, Tsa::kStrict, Tsa::kEts};
  shares.share = {8, 8, 8, 50, 8, 8, 0, 10};
  return shares;
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
  Ets shares;
  shares.algorithm.fill(state.driver.is("bnxt_en") ? Tsa::kStrict : Tsa::kVendor);
  state.qos.ets = fact(shares);
  state.qos.pfc = fact(PrioritySet{});
  state.pci = "0000:3d:00.0";
  state.shares_subnet = fact(false);
  if (state.driver.is("mlx5_core")) state.qos.cnp_dscp = fact(0U);
  if (ofed) {
    state.qos.cnp_vlan_priority = fact(0U);
    state.qos.ecn_np = fact(PrioritySet{});
    state.qos.ecn_rp = fact(PrioritySet{0xff});
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
  ASSERT_EQ(difference.changes.size(), 8U);
  EXPECT_EQ(difference.changes.back().part, Part::kPfc) << "it takes the link down";
  EXPECT_TRUE(difference.flaps_link());
  EXPECT_TRUE(difference.refusals.empty());
  EXPECT_EQ(lines(find(difference, Part::kPfc)->set), Lines{"dcb pfc set dev eth2 prio-pfc all:off 3:on"});
  EXPECT_EQ(lines(find(difference, Part::kPause)->undo), Lines{"ethtool -A eth2 rx on tx on"});
  EXPECT_EQ(lines(find(difference, Part::kDscp)->undo), Lines{"dcb app del dev eth2 dscp-prio 26:3 48:6"});
  EXPECT_EQ(
      lines(find(difference, Part::kTrafficClass)->set),
      Lines{"dcb ets set dev eth2 prio-tc 0:1 1:0 2:2 3:3 4:4 5:5 6:6 7:7 tc-tsa 0:ets 1:ets 2:ets 3:ets 4:ets 5:ets "
            "6:strict 7:ets tc-bw 0:9 1:9 2:8 3:50 4:8 5:8 6:0 7:8"});
  EXPECT_EQ(
      lines(find(difference, Part::kTrafficClass)->undo),
      Lines{"dcb ets set dev eth2 prio-tc 0:1 1:0 2:2 3:3 4:4 5:5 6:6 7:7 tc-tsa 0:vendor 1:vendor 2:vendor 3:vendor "
            "4:vendor 5:vendor 6:vendor 7:vendor tc-bw 0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0"});
  EXPECT_EQ(lines(find(difference, Part::kCnpDscp)->set),
            Lines{"echo 48 >/sys/kernel/debug/mlx5/0000:3d:00.0/cc_params/np_cnp_dscp"});
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
  state.qos.ets = fact(shared_as_wanted());
  state.qos.cnp_dscp = fact(48U);
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

using Map = std::array<std::uint8_t, kPriorities>;

TEST(Configure, WithoutSharesTheMapAloneIsSet) {
  PortState state = fresh("mlx5_core");
  state.qos.traffic_class = fact(Map{});
  state.qos.ets = {};
  const PortDifference difference = find_difference(state, {});
  ASSERT_NE(find(difference, Part::kTrafficClass), nullptr);
  EXPECT_EQ(lines(find(difference, Part::kTrafficClass)->set),
            Lines{"dcb ets set dev eth2 prio-tc 0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7"});
  EXPECT_EQ(lines(find(difference, Part::kTrafficClass)->undo),
            Lines{"dcb ets set dev eth2 prio-tc 0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0"});
}

TEST(TrafficClasses, FitIntoAsManyAsThereAre) {
  const TrafficClasses now{{}, Ets{}};
  EXPECT_EQ(wanted_classes(now, 8, {}, 6).of_priority, (Map{0, 1, 2, 3, 4, 5, 6, 7}));
  const TrafficClasses four = wanted_classes(now, 4, {}, 6);
  EXPECT_EQ(four.text(),
            "prio-tc 0:0 1:0 2:0 3:1 4:0 5:0 6:2 7:0 tc-tsa 0:ets 1:ets 2:strict 3:strict 4:strict 5:strict 6:strict "
            "7:strict tc-bw 0:50 1:50 2:0 3:0 4:0 5:0 6:0 7:0");
  EXPECT_EQ(wanted_classes(now, 2, {}, 6).of_priority, (Map{0, 0, 0, 1, 0, 0, 0, 0}));
  for (const TrafficClasses& good : {four, wanted_classes(now, 8, {}, 6)}) {
    EXPECT_EQ(wanted_classes(good, 8, {}, 6).text(), good.text()) << "what is good stays";
  }
}

TEST(TrafficClasses, SharesMakeUpTheWhole) {
  for (unsigned share = 1; share <= 90; ++share) {
    for (unsigned priority = 0; priority < kPriorities; ++priority) {
      Wanted wanted;
      wanted.share = share;
      wanted.priority = priority;
      const TrafficClasses classes = wanted_classes({{}, Ets{}}, 8, wanted, 6);
      unsigned sum = 0;
      for (unsigned tc = 0; tc < kPriorities; ++tc) {
        if (classes.ets->algorithm[tc] != Tsa::kEts) continue;
        sum += classes.ets->share[tc];
        EXPECT_GT(classes.ets->share[tc], 0);
      }
      EXPECT_EQ(sum, 100U);
      EXPECT_EQ(classes.ets->share[classes.of_priority[priority]], share);
      EXPECT_EQ(wanted_classes(classes, 8, wanted, 6).text(), classes.text());
    }
  }
}

TEST(TrafficClasses, OthersDivideTheirsAsTheyLike) {
  TrafficClasses classes{{0, 0, 0, 3, 0, 0, 6, 0}, shared_as_wanted()};
  classes.ets->share = {20, 30, 0, 50, 0, 0, 0, 0};
  EXPECT_EQ(wanted_classes(classes, 8, {}, 6).text(), classes.text());
  classes.ets->share[3] = 40;
  EXPECT_NE(wanted_classes(classes, 8, {}, 6).text(), classes.text());
  classes.ets->share[3] = 50;
  classes.ets->algorithm[6] = Tsa::kEts;
  EXPECT_NE(wanted_classes(classes, 8, {}, 6).text(), classes.text()) << "CNPs go before all others";
}

TEST(Configure, ArpMattersWhereAnotherPortIsInTheSubnet) {
  PortState state = fresh("mlx5_core");
  state.arp_ignore = state.arp_announce = fact(SysctlPair{});
  state.rp_filter = fact(SysctlPair{0, 1});
  EXPECT_EQ(find(find_difference(state, {}), Part::kArpIgnore), nullptr);
  state.shares_subnet = fact(true);
  const PortDifference difference = find_difference(state, {});
  ASSERT_NE(find(difference, Part::kRpFilter), nullptr) << "that of all counts, too";
  EXPECT_EQ(lines(find(difference, Part::kArpIgnore)->set), Lines{"echo 1 >/proc/sys/net/ipv4/conf/eth2/arp_ignore"});
  EXPECT_EQ(lines(find(difference, Part::kArpAnnounce)->undo),
            Lines{"echo 0 >/proc/sys/net/ipv4/conf/eth2/arp_announce"});
  EXPECT_EQ(lines(find(difference, Part::kRpFilter)->set), Lines{"echo 2 >/proc/sys/net/ipv4/conf/eth2/rp_filter"});
  EXPECT_EQ(difference.notes.size(), 1U) << "routes";
  state.arp_ignore = state.arp_announce = fact(SysctlPair{0, 2});
  state.rp_filter = fact(SysctlPair{});
  EXPECT_EQ(find_difference(state, {}).changes.size(), difference.changes.size() - 3);
}

TEST(Configure, EcnWithoutASettingIsJudgedByWhatThePortDid) {
  PortState state = fresh("mlx5_core");
  EXPECT_EQ(find_difference(state, {}).unknown,
            (Lines{"ECN, notification point: this driver has no setting for it, and no counter tells",
                   "ECN, reaction point: this driver has no setting for it, and no counter tells"}));
  state.congestion.sent = 7;
  state.congestion.handled = 0;
  const PortDifference counted = find_difference(state, {});
  EXPECT_EQ(counted.notes,
            Lines{"ECN, notification point: it works: the port sent 7 CNPs; this driver has no setting for it"});
  EXPECT_EQ(counted.unknown,
            Lines{"ECN, reaction point: this driver has no setting for it, and no CNP was counted that "
                  "would prove it"});
  state.qos.ecn_np = fact(PrioritySet{1U << 3});
  state.qos.ecn_rp = fact(PrioritySet{1U});
  const PortDifference of_firmware = find_difference(state, {});
  EXPECT_EQ(std::ranges::count(of_firmware.equal, Part::kEcnNp), 1);
  EXPECT_EQ(of_firmware.notes,
            Lines{"ECN, reaction point: off for priority 3 (here); only the firmware's tool changes that"});
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
  ASSERT_EQ(difference.unknown.size(), 3U);
  EXPECT_EQ(difference.unknown[2], "PFC: Operation not permitted (EPERM) (dcb -j pfc show dev eth2)");
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
