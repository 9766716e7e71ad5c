// The pages of docs/rules/: what the rules say of themselves, and a finding of each as the doctor prints it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "host/rule.hpp"

namespace tensorwire::host {

/// Name of the file -> Markdown: a page for each rule, and README.md with a list of all. `example` gives a
/// finding of a rule.
[[nodiscard]] std::map<std::string, std::string> rule_pages(const std::function<Finding(const Rule&)>& example);

/// The rule; null where there is none of that id ("TW-GID-003", or "GID-003").
[[nodiscard]] const Rule* find_rule(std::string_view id);

}  // namespace tensorwire::host
