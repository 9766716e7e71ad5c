// docs/rules/ says what the rules say. When this fails, copy the pages that it wrote.
#include "host/rule_pages.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "host/rule_case.hpp"

namespace tensorwire::host::test {

namespace {

/// The finding of the first case in which the rule fires.
Finding example(const Rule& rule) {
  for (const RuleCase* one : all_cases()) {
    if (!one->firing().contains(std::string{rule.id.substr(3)})) continue;
    TestHost host{one->kind};
    one->change(host);
    for (const Finding& finding : diagnose(host.facts()).findings) {
      if (finding.id == rule.id) return finding;
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
  const auto pages = rule_pages(example);
  for (const auto& [name, text] : pages) {
    std::ofstream{testing::TempDir() + name} << text;
    EXPECT_TRUE(content(TW_DOCS_DIR "/rules/" + name) == text) << "cp " << testing::TempDir() << name << " docs/rules/";
  }
  for (const auto& entry : std::filesystem::directory_iterator{TW_DOCS_DIR "/rules"}) {
    EXPECT_TRUE(pages.contains(entry.path().filename().string())) << entry.path() << " belongs to no rule";
  }
}

TEST(RulePages, FindRule) {
  ASSERT_NE(find_rule("GID-003"), nullptr);
  EXPECT_EQ(find_rule("GID-003"), find_rule("TW-GID-003"));
  EXPECT_EQ(find_rule("GID"), nullptr);
}

}  // namespace

}  // namespace tensorwire::host::test
