// In which priority a burst rode, from differences of counters at both ends, and what a switch's own counters add.
#include "host/class_proof.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "host/parse/switch_counters.hpp"
#include "host/read/stacked.hpp"
#include "host/switch_view.hpp"
#include "host/test_host.hpp"

namespace tensorwire::host::test {
namespace {

constexpr std::uint64_t kBurst = 100'000'000;
constexpr PrioritySet kLosslessThree{1U << 3};

/// An end at which only `priority` moved, by `bytes` in one second, and by `idle` in the second before.
BurstEnd end_with(unsigned priority, std::uint64_t bytes, std::uint64_t idle = 0) {
  BurstEnd end{"gpu01 eth2", {kSecond, {}}, {kSecond, {}}, kLosslessThree, Trust::kDscp};
  for (unsigned p = 0; p < kPriorities; ++p) {
    for (CounterWindow* window : {&end.idle, &end.burst}) {
      window->priorities[p].sent_bytes = 0;
      window->priorities[p].received_bytes = 0;
    }
  }
  for (const BytesOf side : {&PriorityActivity::sent_bytes, &PriorityActivity::received_bytes}) {
    end.idle.priorities[priority].*side = idle;
    end.burst.priorities[priority].*side = bytes;
  }
  return end;
}

bool has(const std::string& text, std::string_view words) { return text.find(words) != std::string::npos; }

TEST(ClassProof, BothEndsInTheLosslessPriority) {
  const ClassProof proof = prove_class(end_with(3, kBurst), end_with(3, kBurst), kBurst, 26);
  EXPECT_EQ(proof.verdict, Classified::kLossless);
  EXPECT_EQ(proof.conclusion, "data is classified into priority 3 at both hosts, DSCP survives: proven");
}

TEST(ClassProof, FivePercentAndNoMore) {
  EXPECT_EQ(ride_of(end_with(3, 104'900'000), &PriorityActivity::sent_bytes, kBurst).priority, 3U);
  EXPECT_EQ(ride_of(end_with(3, 95'100'000), &PriorityActivity::sent_bytes, kBurst).priority, 3U);
  const Ride more = ride_of(end_with(3, 105'100'000), &PriorityActivity::sent_bytes, kBurst);
  EXPECT_EQ(more.priority, std::nullopt);
  EXPECT_TRUE(has(more.why, "priority 3 moved by 105.1 MB")) << more.why;
  EXPECT_EQ(ride_of(end_with(3, 94'900'000), &PriorityActivity::sent_bytes, kBurst).priority, std::nullopt);
}

TEST(ClassProof, TheIdleRateIsTakenAwayForAsLongAsTheBurstTook) {
  BurstEnd busy = end_with(3, kBurst + 80'000'000, 20'000'000);
  busy.burst.elapsed = 4 * kSecond;
  const Ride ride = ride_of(busy, &PriorityActivity::sent_bytes, kBurst);
  EXPECT_EQ(ride.priority, 3U);
  EXPECT_EQ(ride.bytes, kBurst);
  EXPECT_DOUBLE_EQ(ride.idle_per_second, 20e6);
}

TEST(ClassProof, LossyPrioritiesAndDifferentOnes) {
  const ClassProof zero = prove_class(end_with(0, kBurst), end_with(0, kBurst), kBurst, 26);
  EXPECT_EQ(zero.verdict, Classified::kLossy);
  EXPECT_TRUE(has(zero.conclusion, "priority 0 at both hosts")) << zero.conclusion;
  EXPECT_TRUE(has(zero.conclusion, "it is NOT lossless at gpu01 eth2"));
  const ClassProof lost = prove_class(end_with(3, kBurst), end_with(0, kBurst), kBurst, 26);
  EXPECT_EQ(lost.verdict, Classified::kLossy);
  EXPECT_TRUE(has(lost.conclusion, "DSCP 26 does not survive the way")) << lost.conclusion;
  BurstEnd untrusting = end_with(0, kBurst);
  untrusting.trust = Trust::kPcp;
  EXPECT_TRUE(has(prove_class(end_with(3, kBurst), untrusting, kBurst, 26).conclusion, "does not sort by DSCP"));
}

TEST(ClassProof, WhatCouldNotBeReadIsNoVerdict) {
  BurstEnd blind = end_with(3, kBurst);
  blind.pfc.reset();
  const ClassProof unsure = prove_class(end_with(3, kBurst), blind, kBurst, 26);
  EXPECT_EQ(unsure.verdict, Classified::kUnsure);
  EXPECT_TRUE(has(unsure.conclusion, "whether it is lossless at gpu01 eth2 is not known"));
  const ClassProof none =
      prove_class(end_with(3, kBurst), BurstEnd{"gpu02 eth2", {kSecond, {}}, {kSecond, {}}, {}, {}}, kBurst, 26);
  EXPECT_EQ(none.verdict, Classified::kUnknown);
  EXPECT_TRUE(has(none.conclusion, "at gpu02 eth2, the driver counts no bytes by priority")) << none.conclusion;
  EXPECT_TRUE(has(prove_class(end_with(3, 0), end_with(3, 0), kBurst, 26).conclusion, "none moved"));
}

TEST(ClassProof, ADscpThatIsNotTrustedIsNotProven) {
  BurstEnd pcp = end_with(3, kBurst);
  pcp.trust = Trust::kPcp;
  const ClassProof proof = prove_class(end_with(3, kBurst), pcp, kBurst, 26);
  EXPECT_EQ(proof.verdict, Classified::kLossless);
  EXPECT_FALSE(has(proof.conclusion, "DSCP survives"));
}

TEST(ClassProof, PacketsWeighMoreThanTheirPayload) {
  EXPECT_EQ(bytes_on_wire(8192, 4096, false), 8192U + 2 * 62);
  EXPECT_EQ(bytes_on_wire(1025, 1024, true), 1025U + 2 * 82);
}

TEST(ClassProof, PausesAreNamed) {
  BurstEnd end = end_with(3, kBurst);
  end.burst.priorities[3].pauses_sent = 12;
  end.burst.priorities[5].pauses_received = 7;
  EXPECT_EQ(pauses_at(end),
            (std::vector<std::string>{"gpu01 eth2 paused its switch port 12 times in priority 3",
                                      "gpu01 eth2 was paused by its switch port 7 times in priority 5"}));
}

TEST(StackedInterfaces, PortsBelowAndAll) {
  TestHost host{Kind::kMlx5};
  for (const char* vlan : {"bond0", "bond0.100"}) host.file(std::string{"/sys/class/net/"} + vlan + "/mtu", "9000\n");
  for (const char* link : {"bond0.100/lower_bond0", "bond0/upper_bond0.100", "bond0/lower_eth2", "bond0/lower_eth3",
                           "eth2/upper_bond0", "eth3/upper_bond0"}) {
    host.file(std::string{"/sys/class/net/"} + link + "/mtu", "9000\n");
  }
  using Names = std::vector<std::string>;
  EXPECT_EQ(ports_below(host.tree(), "bond0.100"), (Names{"eth2", "eth3"}));
  EXPECT_EQ(ports_below(host.tree(), "eth2"), Names{"eth2"});
  EXPECT_EQ(with_all_above(host.tree(), "eth3"), (Names{"eth3", "bond0", "bond0.100"}));
  for (const Nic& nic : host.nics()) host.statistics(nic, {{"tx_prio3_bytes", 5}});
  const Names ports{host.nic(0).netdev, host.nic(1).netdev};
  EXPECT_EQ(counter(statistics_of(host.tree(), ports), "tx_prio3_bytes"), 10U);
}

// As SONiC prints them.
constexpr std::string_view kQueues =
    "For namespace :\n"
    "     Port    TxQ    Counter/pkts    Counter/bytes    Drop/pkts    Drop/bytes\n"
    "---------  -----  --------------  ---------------  -----------  ------------\n"
    "Ethernet0    UC0             120           11,520            0             0\n"
    "Ethernet0    UC3          16,400       68,124,672            0             0\n"
    "Ethernet0   MC10             N/A              N/A          N/A           N/A\n"
    "\n"
    "     Port    TxQ    Counter/pkts    Counter/bytes    Drop/pkts    Drop/bytes\n"
    "---------  -----  --------------  ---------------  -----------  ------------\n"
    "Ethernet4    UC0            9000        9,000,000           41        41,000\n"
    "Ethernet4    UC3               0\n";
constexpr std::string_view kPfc =
    "  Port Rx    PFC0    PFC1    PFC2    PFC3    PFC4    PFC5    PFC6    PFC7\n"
    "---------  ------  ------  ------  ------  ------  ------  ------  ------\n"
    "Ethernet0       0       0       0   1,812       0       0       0       0\n"
    "\n"
    "  Port Tx    PFC0    PFC1    PFC2    PFC3    PFC4    PFC5    PFC6    PFC7\n"
    "---------  ------  ------  ------  ------  ------  ------  ------  ------\n"
    "Ethernet4       0       0       0       7       0       0       0       0\n"
    "Ethernet8     N/A     N/A     N/A     N/A     N/A     N/A     N/A     N/A\n";

TEST(SwitchCounters, TablesOfQueuesAndOfPauses) {
  const SwitchCounters counters = parse_switch_counters(std::string{kQueues} + std::string{kPfc});
  ASSERT_EQ(counters.queues.size(), 3U);
  EXPECT_EQ(counters.queues.at({"Ethernet0", "UC3"}).bytes, 68'124'672U);
  EXPECT_EQ(counters.queues.at({"Ethernet4", "UC0"}).dropped, 41U);
  EXPECT_EQ(counters.pfc_received.at("Ethernet0")[3], 1812U);
  EXPECT_EQ(counters.pfc_sent.size(), 1U);
  EXPECT_TRUE(parse_switch_counters("Port TxQ\nEthernet0 UC3\n\x01\xff").empty());
}

TEST(SwitchCounters, WhatMovedBetweenTwoDumps) {
  SwitchCounters before = parse_switch_counters(kQueues);
  SwitchCounters after = before;
  after.queues[{"Ethernet0", "UC3"}].bytes += 1000;
  after.queues[{"Ethernet4", "UC0"}].bytes = 10;  // cleared
  const SwitchCounters delta = moved(before, after);
  EXPECT_EQ(delta.queues.at({"Ethernet0", "UC3"}).bytes, 1000U);
  EXPECT_EQ(delta.queues.at({"Ethernet0", "UC0"}).bytes, 0U);
  EXPECT_EQ(delta.queues.at({"Ethernet4", "UC0"}).bytes, 10U);
}

TEST(SwitchCounters, NameQueuesDropsAndPausingPorts) {
  const SwitchCounters counters = parse_switch_counters(std::string{kQueues} + std::string{kPfc});
  using Lines = std::vector<std::string>;
  const Lines burst = switch_lines(counters, 68'000'000);
  EXPECT_EQ(burst,
            (Lines{"switch queue: UC3 of Ethernet0 carried 68.1 MB", "switch port Ethernet4 dropped 41 packets in UC0",
                   "switch port Ethernet4 paused its neighbour 7 times in priority 3",
                   "switch port Ethernet0 was paused by its neighbour 1812 times in priority 3"}));
  EXPECT_EQ(switch_lines(counters, std::nullopt)[1], "switch queue: UC0 of Ethernet4 carried 9.0 MB");
  EXPECT_EQ(switch_lines(counters, 1'000'000)[0], "switch queue: none of those in the dump carried 1.0 MB");
  EXPECT_TRUE(has(switch_lines(parse_switch_counters(kPfc), 1)[0], "switch queue: unknown"));
}

}  // namespace
}  // namespace tensorwire::host::test
