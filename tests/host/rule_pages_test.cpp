// docs/rules/ says what the rules say. When this fails, copy the pages that it wrote.
#include "host/rule_pages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "host/rule_case.hpp"

namespace tensorwire::host::test {

namespace {

/// The finding of the first case in which the rule fires.
Finding example(const Rule& rule) {
  for (const auto cases : {gid_cases(), qos_cases(), gpudirect_cases(), host_cases(), nccl_cases(), field_cases()}) {
    for (const RuleCase& one : cases) {
      if (std::ranges::find(one.ids, rule.id.substr(3)) == one.ids.end()) continue;
      TestHost host{one.kind};
      one.change(host);
      for (const Finding& finding : diagnose(host.facts()).findings) {
        if (finding.id == rule.id) return finding;
      }
    }
  }
  return {};
}

std::string content(const std::string& path) {
  std::ifstream file{path};
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(RulePages, AreThoseOfTheRules) {
  for (const auto& [name, text] : rule_pages(example)) {
    std::ofstream{testing::TempDir() + name} << text;
    EXPECT_TRUE(content(TW_DOCS_DIR "/rules/" + name) == text) << "cp " << testing::TempDir() << name << " docs/rules/";
  }
}

TEST(RulePages, FindRule) {
  ASSERT_NE(find_rule("GID-003"), nullptr);
  EXPECT_EQ(find_rule("GID-003"), find_rule("TW-GID-003"));
  EXPECT_EQ(find_rule("GID"), nullptr);
}

}  // namespace

}  // namespace tensorwire::host::test
