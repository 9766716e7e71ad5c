#include "host/rule_pages.hpp"

#include <fmt/format.h>

#include "host/report.hpp"

namespace tensorwire::host {

namespace {

constexpr std::string_view kGenerated =
    "<!-- Made from src/host/rules by a test (tests/host/rule_pages_test.cpp): change it there. -->\n";

std::string page(const RuleGroup& group, const Rule& rule, const Finding& example) {
  return fmt::format(
      "{}\n# {}: {}\n\n[All rules](README.md) · {} · {}\n\n{}\n\nHow the doctor says it:\n\n```text\n{}```\n",
      kGenerated, rule.id, rule.title, group.title, to_string(rule.severity), rule.why, finding_text(example, false));
}

}  // namespace

std::map<std::string, std::string> rule_pages(const std::function<Finding(const Rule&)>& example) {
  std::map<std::string, std::string> pages;
  std::string list =
      fmt::format("{}\n# What the doctor looks for\n\nHow to use it: [doctor](../doctor.md).\n", kGenerated);
  for (const RuleGroup& group : all_rules()) {
    list += fmt::format("\n## {}\n\n| rule | severity | what is wrong |\n|---|---|---|\n", group.title);
    for (const Rule& rule : group.rules) {
      list += fmt::format("| [{0}]({0}.md) | {1} | {2} |\n", rule.id, to_string(rule.severity), rule.title);
      pages[std::string{rule.id} + ".md"] = page(group, rule, example(rule));
    }
  }
  pages["README.md"] = list;
  return pages;
}

const Rule* find_rule(std::string_view id) {
  for (const RuleGroup& group : all_rules()) {
    for (const Rule& rule : group.rules) {
      if (rule.id == id || rule.id.substr(3) == id) return &rule;
    }
  }
  return nullptr;
}

}  // namespace tensorwire::host
