#include "host/rule_pages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "host/report.hpp"

namespace tensorwire::host {

namespace {

constexpr std::string_view kGenerated =
    "<!-- Made from src/host/rules by a test (tests/host/rule_pages_test.cpp): change it there. -->\n";

std::string anchor(std::string_view id) {
  std::string lower{id};
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

std::string page(const RuleGroup& group, const std::function<Finding(const Rule&)>& example) {
  std::string text = fmt::format("{}\n# {}\n\n[All rules](README.md)\n", kGenerated, group.title);
  for (const Rule& rule : group.rules) {
    text += fmt::format("\n<a id=\"{}\"></a>\n\n## {}: {}\n\n{}\n\n```text\n{}```\n", anchor(rule.id), rule.id,
                        rule.title, rule.why, finding_text(example(rule), false));
  }
  return text;
}

}  // namespace

std::map<std::string, std::string> rule_pages(const std::function<Finding(const Rule&)>& example) {
  std::map<std::string, std::string> pages;
  std::string list =
      fmt::format("{}\n# What the doctor looks for\n\nHow to use it: [doctor](../doctor.md).\n", kGenerated);
  for (const RuleGroup& group : all_rules()) {
    const std::string file = std::string{group.name} + ".md";
    list += fmt::format("\n## [{}]({})\n\n| rule | severity | what is wrong |\n|---|---|---|\n", group.title, file);
    for (const Rule& rule : group.rules) {
      list += fmt::format("| [{}]({}#{}) | {} | {} |\n", rule.id, file, anchor(rule.id), to_string(rule.severity),
                          rule.title);
    }
    pages[file] = page(group, example);
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
