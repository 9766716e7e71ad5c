// The scenarios of scenarios/, as they are told in docs/fabric.md; and what wrong ones are answered.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "fabric/simulation.hpp"

namespace tensorwire::fabric {
namespace {

std::string path_of(const std::string& name) { return TENSORWIRE_SCENARIOS "/" + name + ".toml"; }

std::string text_of(const std::string& name) {
  std::ifstream file{path_of(name)};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Report play(Scenario scenario, std::uint32_t operations = 0) {
  if (operations != 0) scenario.allreduces[0].operations = operations;
  Simulation simulation(scenario);
  while (simulation.run(kMillisecond)) {
  }
  Report report = simulation.report();
  EXPECT_EQ(report.failure, "");
  EXPECT_EQ(report.groups[0].operations, scenario.allreduces[0].operations) << "the limit came first";
  return report;
}

// ---- (a) the PFC storm

constexpr std::uint32_t kFew = 6;  // all-reduces; tests/e2e plays all, with ten seeds

TEST(PfcStorm, MakesATokenTakeMoreThan100Milliseconds) {
  const Report report = play(read_scenario(path_of("pfc_storm")), kFew);
  EXPECT_GT(report.ms_per_token, 100);
  EXPECT_GT(report.pause_fraction_max, 0.5);
  EXPECT_EQ(report.marked, 0U);
  EXPECT_EQ(report.dropped, 0U);
  EXPECT_NE(report.finding.find("ECN is off"), std::string::npos) << report.finding;
  // Host 1, on the leaf of the incast's receiver, does nothing; host 63 is one of the senders.
  EXPECT_EQ(report.links[1].a + " - " + report.links[1].b, "host 1 - leaf 0");
  EXPECT_EQ(report.links[1].from_a.paused + report.links[1].from_b.paused, 0);
  EXPECT_GT(report.links[63].from_a.paused, 0.5);
  EXPECT_EQ(report.links[63].from_b.paused, 0) << "nobody but switches asks for silence";
}

TEST(PfcStorm, IsCuredByMarksBelowXoff) {
  const Report report = play(read_scenario(path_of("pfc_storm_cured")));
  EXPECT_LT(report.ms_per_token, 16);
  EXPECT_GT(report.marked, 0U);
  EXPECT_EQ(report.dropped, 0U);
}

TEST(PfcStorm, IsNotCuredByMarksAboveXoff) {
  const Report report = play(read_scenario(path_of("pfc_storm_miscured")), kFew);
  EXPECT_GT(report.ms_per_token, 100);
  EXPECT_EQ(report.dropped, 0U);
}

TEST(PfcStorm, FilesDifferInEcnKeysOnly) {
  const std::string storm = text_of("pfc_storm");
  const std::string begin = "[switch.ecn]", end = "\n[host]";
  for (const char* name : {"pfc_storm_cured", "pfc_storm_miscured"}) {
    const std::string other = text_of(name);
    EXPECT_EQ(storm.substr(0, storm.find(begin)), other.substr(0, other.find(begin)));
    EXPECT_EQ(storm.substr(storm.find(end)), other.substr(other.find(end)));
  }
}

TEST(PfcStorm, SharesNoHostWithTheIncast) {
  const Scenario storm = read_scenario(path_of("pfc_storm"));
  for (const HostId rank : storm.allreduces[0].hosts)
    for (const auto& hosts : {storm.bulk[0].from, storm.bulk[0].to})
      EXPECT_EQ(std::ranges::find(hosts, rank), hosts.end());
}

// ---- (b) a lossy class: the tail of go-back-N

TEST(LossyClass, HasATailThatGrowsWithLoss) {
  Scenario scenario = read_scenario(path_of("lossy_class"));
  const double timeout_us = 4.096 * (1U << scenario.timeout);
  const auto with_loss = [&](std::uint32_t per_million, std::uint32_t operations) {
    for (Link& link : scenario.topology.links) link.config.loss_per_million = per_million;
    return play(scenario, operations);
  };
  const double idle = with_loss(0, 20).p50_us;
  const Report rare = with_loss(100, 400);
  EXPECT_LT(rare.p50_us, 1.01 * idle);
  EXPECT_GT(rare.p99_us, 1.5 * idle);
  EXPECT_LT(rare.p99_us, timeout_us) << "repeated after a round trip, not after a timeout";
  const Report some = with_loss(1000, 400);
  EXPECT_LT(some.p50_us, 1.5 * idle);
  EXPECT_GT(some.max_us, timeout_us);
  const Report many = with_loss(10'000, 40);
  EXPECT_GT(many.p50_us, 20 * idle);
  EXPECT_GT(many.timeouts, 10U);
}

// ---- (c) traffic in the wrong class

TEST(WrongClass, EndsAJobThatTheRightOneKeepsFromHarm) {
  Scenario scenario = read_scenario(path_of("wrong_class"));
  Simulation wrong(scenario);
  while (wrong.run(kMillisecond)) {
  }
  EXPECT_NE(wrong.report().failure.find("a work request failed"), std::string::npos) << wrong.report().failure;
  EXPECT_GT(wrong.report().dropped, 1000U);
  scenario.allreduces[0].dscp = 26;
  const Report right = play(scenario);
  EXPECT_LT(right.ms_per_token, 16);
  EXPECT_GT(right.dropped, 1000U) << "of the others";
}

// ---- (d) a slow receiver

TEST(SlowReceiver, SpreadsPausesUntilEcnTellsTheSenders) {
  Scenario scenario = read_scenario(path_of("slow_receiver"));
  const Report ill = play(scenario);
  EXPECT_GT(ill.ms_per_token, 30);
  EXPECT_GT(ill.pause_fraction_max, 0.5);
  EXPECT_EQ(ill.dropped, 0U);
  scenario.fabric.switches.ecn.enabled = true;
  const Report cured = play(scenario);
  EXPECT_LT(cured.ms_per_token, 16);
  EXPECT_LT(cured.pause_fraction_max, 0.05);
}

// ---- (e) a deadlock

TEST(Deadlock, FreezesTheFabricForEver) {
  Simulation simulation(read_scenario(path_of("deadlock")));
  while (simulation.run(kMillisecond) && simulation.now() < 10 * kMillisecond) {
  }
  const std::uint64_t data = simulation.report().data_packet_hops;
  while (simulation.run(kMillisecond)) {
  }
  const Report report = simulation.report();
  EXPECT_EQ(report.deadlock.size(), 4U);
  EXPECT_LT(report.groups[0].operations, 20U);
  EXPECT_LT(report.data_packet_hops, data + data / 10);
  EXPECT_EQ(report.dropped, 0U);
  EXPECT_NE(report.finding.find("DEADLOCK"), std::string::npos) << report.finding;
}

TEST(Deadlock, TheWatchdogThrowsAwayAndGoesOn) {
  Simulation simulation(read_scenario(path_of("deadlock_watchdog")));
  while (simulation.run(kMillisecond) && simulation.now() < 25 * kMillisecond) {
  }
  const std::uint64_t data = simulation.report().data_packet_hops;
  while (simulation.run(kMillisecond)) {
  }
  const Report report = simulation.report();
  EXPECT_EQ(report.failure, "");
  EXPECT_GT(report.data_packet_hops, data + data / 4) << "it goes on";
  EXPECT_GT(report.watchdog, 4U);
  EXPECT_GT(report.watchdog_dropped, 1000U);
  EXPECT_GT(report.retransmitted, report.watchdog_dropped / 2);
  EXPECT_NE(report.finding.find("watchdog gave up"), std::string::npos) << report.finding;
}

TEST(Deadlock, DoesNotFormWhereMarksKeepQueuesShort) {
  const Report report = play(read_scenario(path_of("deadlock_prevented")));
  EXPECT_TRUE(report.deadlock.empty());
  EXPECT_GT(report.lost, 0U) << "the links did not fail";
}

TEST(Deadlock, FilesDifferInTwoSwitchesOnly) {
  const std::string frozen = text_of("deadlock");
  const auto with = [&](const std::string& table) {
    std::string text = frozen;
    const std::size_t at = text.find("= false", text.find("\n[switch." + table + "]"));
    return text.replace(at, 7, "= true");
  };
  EXPECT_EQ(text_of("deadlock_watchdog"), with("watchdog"));
  EXPECT_EQ(text_of("deadlock_prevented"), with("ecn"));
}

TEST(LinkFailure, IsForgottenWhenTheLinkIsBack) {
  const char* const kText = R"(
limit = "40ms"
host.timeout = 8
topology = {shape = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 4}
bulk = [{from = "0-3", to = "4-7", pairs = true, messages = 40}]
link_failure = [{from = "leaf 0", to = "spine 1", at = "500us", until = "3ms", reroute_after = "100us"}]
)";
  Simulation simulation(parse_scenario(kText, "x.toml"));
  while (simulation.run(kMillisecond)) {
  }
  const Report report = simulation.report();
  EXPECT_GT(report.lost, 0U);
  EXPECT_EQ(report.unroutable, 0U);
  EXPECT_GT(report.bulk_slowest_pair_gbps, 20);
  for (const auto& flow : simulation.flows()) EXPECT_TRUE(flow->finished());
}

// ---- (f) elephants that collide

TEST(EcmpCollision, IsDissolvedByQueuePairs) {
  Scenario scenario = read_scenario(path_of("ecmp_collision"));
  scenario.limit = 4 * kMillisecond;
  const auto with_queue_pairs = [&](std::uint32_t count) {
    scenario.bulk[0].queue_pairs = count;
    Simulation simulation(scenario);
    while (simulation.run(kMillisecond)) {
    }
    return simulation.report();
  };
  const Report one = with_queue_pairs(1);
  EXPECT_LT(one.bulk_slowest_pair_gbps, 210) << "of 400";
  EXPECT_NE(one.finding.find("ECMP"), std::string::npos) << one.finding;
  const Report eight = with_queue_pairs(8);
  EXPECT_GT(eight.bulk_slowest_pair_gbps, 1.5 * one.bulk_slowest_pair_gbps);
  EXPECT_GT(eight.bulk_gbps, 1.25 * one.bulk_gbps);
  EXPECT_EQ(eight.finding.find("ECMP"), std::string::npos) << eight.finding;
}

// ---- what bad input gets

struct Bad {
  const char* text;
  std::vector<const char*> says;
};

TEST(Scenario, RefusesWhatCannotBe) {
  const std::vector<Bad> cases = {
      {"sed = 1", {"x.toml", "line 1", "sed", "Allowed: name, about, seed"}},
      {"seed = -1", {"line 1", "seed", "from 0"}},
      {"limit = \"3 parsecs\"", {"line 1", "limit", "\"75us\""}},
      {"[topology]\nshape = \"moebius\"",
       {"line 2", "topology.shape", "single-switch, dumbbell, leaf-spine, rail-optimised, fat-tree"}},
      {"[topology]\nshape = \"fat-tree\"\nports = 7", {"line 3", "topology.ports", "even"}},
      {"[topology]\nlink = \"56G\"", {"line 2", "topology.link", "56G", "800G"}},
      {"[topology]\nloss = 2", {"line 2", "topology.loss", "from 0 to 1"}},
      {"[switch]\nalpha = 0.3", {"line 2", "switch.alpha", "powers of two"}},
      {"[switch]\nbuffer = \"1MiB\"\nheadroom = \"1MiB\"", {"line 3", "switch.headroom", "8 ports", "1048576"}},
      {"[switch.ecn]\nmin = 2\nmax = 1", {"line 2", "switch.ecn.min", "not below max"}},
      {"[host]\nmtu = \"1500\"", {"line 2", "host.mtu", "256, 512, 1024, 2048, 4096"}},
      {"[host.dcqcn]\nmanner = \"swift\"", {"line 2", "host.dcqcn.manner", "off, nic, paper"}},
      {"[[allreduce]]\nhosts = [0, 8]", {"line 2", "allreduce.hosts", "8 is out of range", "below 8"}},
      {"[[allreduce]]\nhosts = \"0-1-2\"", {"line 2", "allreduce.hosts", "no list"}},
      {"[[allreduce]]\nhosts = [0, 0]", {"line 2", "twice"}},
      {"[[allreduce]]\nbytes = 8", {"line 1", "allreduce.hosts", "missing"}},
      {"[[allreduce]]\nhosts = [0, 1]\nbytes = 3", {"line 3", "allreduce.bytes", "bf16"}},
      {"[[bulk]]\nfrom = 0\nto = 1\nmessage = \"2GiB\"", {"line 4", "bulk.message", "1GiB"}},
      {"[[slow_receiver]]\nhost = 0\nxon = \"200KiB\"", {"line 3", "slow_receiver.xon", "xoff"}},
      {"[[bulk]]\nfrom = [0, 1]\nto = 2\npairs = true", {"line 4", "bulk.pairs", "equally many"}},
      {"[[link_failure]]\nfrom = \"leaf 9\"", {"line 2", "link_failure.from", "leaf 9", "host 7", "switch"}},
      {"[[link_failure]]\nfrom = \"host 0\"\nto = \"host 1\"", {"line 3", "link_failure.to", "no link"}},
      {"[[link_failure]]\nfrom = \"host 0\"\nto = \"switch\"\nat = \"2us\"\nuntil = \"1us\"",
       {"line 5", "link_failure.until", "not after"}},
      {"[[link_failure]]\nfrom = \"host 3\"\nto = \"switch\"",
       {"line 2", "link_failure.from", "no way leads to host 3"}},
      {"topology = {shape = \"dumbbell\"}\n[[link_failure]]\nfrom = \"right\"\nto = \"left\"",
       {"line 3", "link_failure.from", "no way leads to right"}},
      {"[switch.watchdog]\ndetect = 3", {"line 2", "switch.watchdog.detect", "no text"}},
      {"allreduce = 3", {"line 1", "[[allreduce]]"}},
      {"seed = ", {"line 1"}},
  };
  for (const Bad& bad : cases) {
    try {
      (void)parse_scenario(bad.text, "x.toml");
      ADD_FAILURE() << "accepted: " << bad.text;
    } catch (const Error& error) {
      const std::string line = error.what();
      for (const char* part : bad.says) EXPECT_NE(line.find(part), std::string::npos) << line << "\n lacks " << part;
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    }
  }
}

TEST(Scenario, DefaultsMakeAFabric) {
  Simulation simulation(parse_scenario("[[bulk]]\nfrom = \"0-2\"\nto = 3\nmessages = 2", "x.toml"));
  while (simulation.run(kMillisecond)) {
  }
  EXPECT_GT(simulation.report().goodput_gbps, 90);
}

}  // namespace
}  // namespace tensorwire::fabric
