#include "host/compare/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/json_text.hpp"
#include "host/writing.hpp"

namespace tensorwire::host {

namespace {

constexpr const char* kNotSet = "not set";
constexpr std::size_t kMostNames = 8;

/// Variables are known to be unset where they are missing; other properties are not known there.
bool is_variable(std::string_view property) { return kind_of(property).name == "setting"; }

std::vector<Outliers> values_of(const std::string& property, const std::vector<NamedProperties>& hosts) {
  std::map<std::string, std::vector<std::string>> by_value;
  for (const NamedProperties& one : hosts) {
    const auto found = one.properties.values.find(property);
    if (found != one.properties.values.end()) {
      by_value[found->second].push_back(one.host);
    } else if (is_variable(property)) {
      by_value[kNotSet].push_back(one.host);
    }
  }
  std::vector<Outliers> values;
  for (auto& [value, names] : by_value) values.push_back({value, std::move(names)});
  std::ranges::stable_sort(values, {}, [](const Outliers& one) { return one.hosts.size(); });
  return values;
}

std::string names(const std::vector<std::string>& hosts) {
  const std::size_t shown = std::min(hosts.size(), kMostNames);
  std::string text =
      fmt::format("{}", fmt::join(hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  text = printable(text);
  return shown == hosts.size() ? text : fmt::format("{} and {} more", text, hosts.size() - shown);
}

std::string json_of(const Outliers& outliers) {
  return fmt::format(R"({{"value":{},"hosts":{}}})", json_quoted(outliers.value),
                     json_array(outliers.hosts, json_quoted));
}

std::string json_of(const Difference& difference) {
  return fmt::format(R"({{"property":{},"severity":{},"why":{},"majority":{},"agreeing":{},"outliers":{}}})",
                     json_quoted(difference.property), json_quoted(to_string(difference.severity)),
                     json_quoted(difference.why),
                     difference.majority.empty() ? "null" : json_quoted(difference.majority), difference.agreeing,
                     json_array(difference.outliers, [](const Outliers& one) { return json_of(one); }));
}

}  // namespace

Comparison compare(const std::vector<NamedProperties>& hosts) {
  std::set<std::string> properties;
  for (const NamedProperties& one : hosts) {
    for (const auto& [name, value] : one.properties.values) properties.insert(name);
  }
  Comparison comparison{.hosts = hosts.size(), .differences = {}};
  for (const std::string& property : properties) {
    std::vector<Outliers> values = values_of(property, hosts);
    if (values.size() < 2) continue;
    const PropertyKind& kind = kind_of(property);
    Difference difference{property, kind.severity, std::string{kind.why}, {}, 0, {}};
    if (values.back().hosts.size() > values[values.size() - 2].hosts.size()) {
      difference.majority = values.back().value;
      difference.agreeing = values.back().hosts.size();
      values.pop_back();
    }
    difference.outliers = std::move(values);
    comparison.differences.push_back(std::move(difference));
  }
  std::ranges::stable_sort(comparison.differences, std::ranges::greater{}, &Difference::severity);
  return comparison;
}

std::string comparison_text(const Comparison& comparison) {
  std::string text = fmt::format("{} recordings, {} difference{}\n", comparison.hosts, comparison.differences.size(),
                                 comparison.differences.size() == 1 ? "" : "s");
  for (const Difference& difference : comparison.differences) {
    text +=
        fmt::format("\n{} {}: {}\n", to_string(difference.severity), printable(difference.property), difference.why);
    text += difference.majority.empty()
                ? "  no value has most hosts\n"
                : fmt::format("  {} have \"{}\"\n", difference.agreeing, printable(difference.majority));
    for (const Outliers& one : difference.outliers) {
      text += fmt::format("  {} {} \"{}\": {}\n", one.hosts.size(), one.hosts.size() == 1 ? "has" : "have",
                          printable(one.value), names(one.hosts));
    }
  }
  return text;
}

std::string comparison_json(const Comparison& comparison) {
  return fmt::format(R"({{"version":1,"recordings":{},"differences":{}}})", comparison.hosts,
                     json_array(comparison.differences, [](const Difference& one) { return json_of(one); })) +
         "\n";
}

int exit_status(const Comparison& comparison) {
  if (comparison.differences.empty() || comparison.differences.front().severity == Severity::kInfo) return 0;
  return comparison.differences.front().severity == Severity::kError ? 2 : 1;
}

}  // namespace tensorwire::host
