// Every rule fires where it should and nowhere else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "host/report.hpp"
#include "host/rule.hpp"
#include "host/rule_case.hpp"
#include "host/tree/tools.hpp"

namespace tensorwire::host::test {

namespace {

std::vector<std::string> ids_of(const Diagnosis& diagnosis) {
  std::set<std::string> ids;
  for (const Finding& finding : diagnosis.findings) ids.insert(finding.id.substr(3));
  return {ids.begin(), ids.end()};
}

std::vector<const RuleCase*> all_cases() {
  std::vector<const RuleCase*> all;
  for (const auto cases : {gid_cases(), qos_cases(), gpudirect_cases(), host_cases(), nccl_cases(), field_cases()}) {
    for (const RuleCase& one : cases) all.push_back(&one);
  }
  return all;
}

class RuleTest : public testing::TestWithParam<const RuleCase*> {};

TEST_P(RuleTest, FiresExactly) {
  const RuleCase& one = *GetParam();
  TestHost host{one.kind};
  one.change(host);
  const Host facts = host.facts();
  const Diagnosis diagnosis = diagnose(facts);
  const std::string report = report_json(facts, diagnosis);
  EXPECT_EQ(ids_of(diagnosis), one.ids) << report;
  EXPECT_NE(report.find(one.says), std::string::npos) << one.says << " is not in " << report;
  for (const Finding& finding : diagnosis.findings) {
    EXPECT_FALSE(finding.evidence.empty()) << finding.id << " has no evidence";
    EXPECT_FALSE(finding.cause.empty() || finding.remedy.empty() || finding.subject.empty()) << finding.id;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RuleTest, testing::ValuesIn(all_cases()),
                         [](const auto& test) { return std::string{test.param->name}; });

TEST(Rules, HealthyHostsGetNoFinding) {
  for (const Kind kind : kKinds) {
    if (kind == Kind::kNone) continue;
    const Host facts = TestHost{kind}.facts();
    const Diagnosis diagnosis = diagnose(facts);
    EXPECT_TRUE(diagnosis.findings.empty()) << to_string(kind) << ": " << report_json(facts, diagnosis);
    EXPECT_TRUE(diagnosis.unknown.empty()) << to_string(kind) << ": " << report_json(facts, diagnosis);
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

TEST(Rules, EachHasACaseInWhichItFires) {
  std::set<std::string> rules, fired;
  for (const RuleGroup& group : all_rules()) {
    for (const Rule& rule : group.rules) {
      EXPECT_TRUE(rules.insert(std::string{rule.id.substr(3)}).second) << rule.id << " stands there twice";
    }
  }
  for (const RuleCase* one : all_cases()) fired.insert(one->ids.begin(), one->ids.end());
  EXPECT_EQ(rules, fired);
}

}  // namespace

}  // namespace tensorwire::host::test
