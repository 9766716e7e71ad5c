// Every rule fires where it should and nowhere else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "host/hidden.hpp"
#include "host/read/read.hpp"
#include "host/report.hpp"
#include "host/rule.hpp"
#include "host/rule_case.hpp"
#include "host/since.hpp"
#include "host/tree/tools.hpp"

namespace tensorwire::host::test {

namespace {

std::set<std::string> ids_of(const Diagnosis& diagnosis) {
  std::set<std::string> ids;
  for (const Finding& finding : diagnosis.findings) ids.insert(finding.id.substr(3));
  return ids;
}

std::vector<std::string> all_ids() {
  std::vector<std::string> ids;
  for (const RuleGroup& group : all_rules()) {
    for (const Rule& rule : group.rules) ids.emplace_back(rule.id.substr(3));
  }
  return ids;
}

/// What decides about a host: all that can be asked of it, and its log.
std::string everything(TestHost& host) { return host.tree().to_text() + host.log_text(); }

class RuleTest : public testing::TestWithParam<const RuleCase*> {};

TEST_P(RuleTest, FiresExactly) {
  const RuleCase& one = *GetParam();
  TestHost host{one.kind};
  one.change(host);
  const Host facts = host.facts();
  const Diagnosis diagnosis = diagnose(facts);
  const std::string report = report_json(facts, diagnosis);
  EXPECT_EQ(ids_of(diagnosis), one.firing()) << report;
  EXPECT_NE(report.find(one.says), std::string::npos) << one.says << " is not in " << report;
  for (const Finding& finding : diagnosis.findings) {
    EXPECT_FALSE(finding.evidence.empty()) << finding.id << " has no evidence";
    EXPECT_FALSE(finding.cause.empty() || finding.remedy.empty() || finding.subject.empty()) << finding.id;
  }
  if (one.near_misses().empty()) return;
  TestHost healthy{one.kind};
  EXPECT_FALSE(everything(host) == everything(healthy)) << "a near-miss that is no different from a healthy host";
}

INSTANTIATE_TEST_SUITE_P(All, RuleTest, testing::ValuesIn(all_cases()),
                         [](const auto& test) { return std::string{test.param->name}; });

TEST(Rules, HealthyHostsGetNoFinding) {
  for (const Kind kind : kKinds) {
    if (kind == Kind::kNone) continue;
    const Host facts = TestHost{kind}.facts();
    const Diagnosis diagnosis = diagnose(facts);
    EXPECT_TRUE(diagnosis.findings.empty()) << to_string(kind) << ": " << report_json(facts, diagnosis);
    for (const Unknown& one : diagnosis.unknown) {
      // No counter of bnxt tells whether notifications are obeyed.
      EXPECT_TRUE(kind == Kind::kBroadcom && one.id == "TW-ECN-002") << to_string(kind) << ": " << one.fact;
    }
  }
}

bool is_unknown(const Diagnosis& diagnosis, const std::string& id) {
  return std::ranges::find(diagnosis.unknown, "TW-" + id, &Unknown::id) != diagnosis.unknown.end();
}

TEST(Rules, WhatCannotBeReadIsUnknownAndNoVerdict) {
  const auto unread = [](auto change) {
    TestHost host{Kind::kMlx5};
    change(host);
    return diagnose(host.facts());
  };
  EXPECT_TRUE(is_unknown(unread([](TestHost& host) { host.fails(host.nic().port() + "/gids/3", EACCES); }), "GID-001"));
  EXPECT_TRUE(is_unknown(unread([](TestHost& host) { host.no_tool(tool::kDcbPfc, "eth2"); }), "PFC-001"));
  EXPECT_TRUE(is_unknown(unread([](TestHost& host) { host.fails("/proc/target/limits", EACCES); }), "PROC-001"));
  const auto without_root =
      unread([](TestHost& host) { host.file("/sys/bus/pci/devices/0000:3c:00.0/config", std::string(64, '\0')); });
  EXPECT_TRUE(is_unknown(without_root, "GDR-001"));
  EXPECT_TRUE(without_root.findings.empty());
}

TEST(Rules, JudgeCountersByWhatTheyMovedBetweenTwoLooks) {
  const auto look = [](std::uint64_t pauses, std::uint64_t packets) {
    TestHost host{Kind::kMlx5};
    host.statistics(host.nic(),
                    {{"tx_pause_storm_error_events", 2}, {"tx_prio3_pause", pauses}, {"rx_prio3_packets", packets}});
    return host.facts();
  };
  const Host before = look(9'000'000, 250'000'000);
  EXPECT_EQ(ids_of(diagnose(before)), (std::set<std::string>{"PFC-004", "PFC-005"})) << "all that ever was";
  EXPECT_TRUE(ids_of(diagnose(counted_since(before, look(9'000'000, 251'000'000)))).empty()) << "nothing goes on";
  EXPECT_EQ(ids_of(diagnose(counted_since(before, look(9'050'000, 251'000'000)))), std::set<std::string>{"PFC-005"});
  EXPECT_TRUE(ids_of(diagnose(counted_since(before, look(5, 10)))).empty()) << "the driver was loaded anew";
}

TEST(Rules, EveryFactThatCannotBeReadIsListed) {
  const std::string pci = "/sys/bus/pci/devices/";
  for (const auto& [path, id] : std::vector<std::pair<std::string, std::string>>{
           {"/sys/class/infiniband/mlx5_0/ports/1/state", "DEV-004"},
           {"/sys/class/infiniband/mlx5_0/ports/1/link_layer", "DEV-005"},
           {"/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3", "GID-002"},
           {"/sys/class/infiniband_verbs/uverbs0/abi_version", "DEV-003"},
           {"/sys/class/net/eth2/mtu", "MTU-001"},
           {"/sys/class/net/eth2/ecn/roce_np/enable/3", "ECN-001"},
           {"/proc/sys/net/ipv4/conf/eth2/arp_ignore", "NET-001"},
           {"/proc/net/route", "NET-001"},
           {"/proc/target/environ", "NCCL-001"},
           {"/proc/target/maps", "PROC-002"},
           {"/proc/driver/nvidia/version", "GDR-003"},
           {pci + "0000:3d:00.0/current_link_speed", "LINK-001"},
           {pci + "0000:3e:00.0/current_link_width", "LINK-002"},
           {pci + "0000:3e:00.0/resource", "GDR-007"},
           {pci + "0000:3d:00.0/config", "GDR-008"}}) {
    for (const bool garbled : {false, true}) {
      if (garbled && (path.ends_with("environ") || path.ends_with("maps"))) continue;  // any bytes may stand there
      TestHost host{Kind::kOfed};
      if (garbled) host.file(path, "\xff\xfe");
      Recording& tree = host.tree();
      if (!garbled) tree.put(Ask::kText, path, {{}, EACCES});
      EXPECT_TRUE(is_unknown(diagnose(read_host(tree)), id)) << path << (garbled ? " is garbage" : " is refused");
    }
  }
}

TEST(Rules, AContainerSaysWhatIsHiddenFromIt) {
  TestHost host{Kind::kMlx5};
  EXPECT_TRUE(hidden_facts(host.facts()).empty());
  host.file("/.dockerenv", "");
  for (const char* index : {"0", "1", "2", "3"}) host.fails(host.nic().port() + "/gid_attrs/ndevs/" + index, EINVAL);
  host.tree().put(Ask::kOpens, "/dev/infiniband/uverbs1", {{}, EPERM});
  const std::string text = report_text(host.facts(), {}, false);
  for (const char* part : {"whether lldpad runs", "the interface of mlx5_0:1", "the device node of mlx5_1", "debugfs"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in " << text;
}

TEST(Rules, EachHasItsOwnId) {
  const auto ids = all_ids();
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), ids.size());
}

TEST(Rules, EachHasANearMissInWhichItIsSilent) {
  std::set<std::string> missed;
  for (const RuleCase* one : all_cases()) {
    const auto firing = one->firing();
    for (const std::string& id : one->near_misses()) {
      EXPECT_FALSE(firing.contains(id)) << one->name;
      missed.insert(id);
    }
  }
  const auto ids = all_ids();
  EXPECT_EQ(missed, std::set<std::string>(ids.begin(), ids.end()));
}

/// Rules do not know of each other, so a table without one says what the whole table says, less that rule's findings.
TEST(Rules, RemovingAnyOneFailsACase) {
  std::vector<std::pair<const RuleCase*, std::set<std::string>>> said;
  for (const RuleCase* one : all_cases()) {
    TestHost host{one->kind};
    one->change(host);
    said.emplace_back(one, ids_of(diagnose(host.facts())));
  }
  for (const std::string& removed : all_ids()) {
    EXPECT_TRUE(std::ranges::any_of(said,
                                    [&](const auto& entry) {
                                      std::set<std::string> left = entry.second;
                                      left.erase(removed);
                                      return left != entry.first->firing();
                                    }))
        << "without " << removed << " every case still passes";
  }
}

}  // namespace

std::set<std::string> RuleCase::firing() const {
  std::set<std::string> ids;
  for (const std::string& rule : rules) {
    if (!rule.starts_with('!')) ids.insert(rule);
  }
  return ids;
}

std::set<std::string> RuleCase::near_misses() const {
  std::set<std::string> ids;
  for (const std::string& rule : rules) {
    if (rule.starts_with('!')) ids.insert(rule.substr(1));
  }
  return ids;
}

std::vector<const RuleCase*> all_cases() {
  std::vector<const RuleCase*> all;
  for (const auto cases :
       {gid_cases(), qos_cases(), gpudirect_cases(), host_cases(), nccl_cases(), field_cases(), device_field_cases()}) {
    for (const RuleCase& one : cases) all.push_back(&one);
  }
  return all;
}

}  // namespace tensorwire::host::test
