#include "host/read/stacked.hpp"

#include <algorithm>

#include "host/parse/counters.hpp"
#include "host/parse/text.hpp"
#include "host/read/parts.hpp"
#include "host/tree/tools.hpp"

namespace tensorwire::host {
namespace {

/// The kernel has a link "lower_eth2" or "upper_bond0" in an interface's folder for each neighbour.
std::vector<std::string> neighbours(Tree& tree, const std::string& netdev, std::string_view prefix) {
  std::vector<std::string> all;
  for (const std::string& name : names_in(tree, "/sys/class/net/" + netdev).value_or({})) {
    if (name.starts_with(prefix)) all.push_back(name.substr(prefix.size()));
  }
  return all;
}

/// `netdev` and what can be reached from it; the list grows while it is walked.
std::vector<std::string> reachable(Tree& tree, const std::string& netdev, std::string_view prefix) {
  std::vector<std::string> all{netdev};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::string& next : neighbours(tree, all[i], prefix)) {
      if (std::ranges::count(all, next) == 0) all.push_back(std::move(next));
    }
  }
  return all;
}

}  // namespace

std::vector<std::string> ports_below(Tree& tree, const std::string& netdev) {
  std::vector<std::string> all = reachable(tree, netdev, "lower_");
  std::erase_if(all, [&](const std::string& name) { return !neighbours(tree, name, "lower_").empty(); });
  return all;
}

std::vector<std::string> with_all_above(Tree& tree, const std::string& netdev) {
  return reachable(tree, netdev, "upper_");
}

Fact<Counters> statistics_of(Tree& tree, std::span<const std::string> netdevs) {
  Counters sum;
  std::string where;
  for (const std::string& netdev : netdevs) {
    const auto counters = fact_of_tool(tree, tool::kEthtoolStatistics, netdev, [](std::string_view text) {
      return std::optional{parse_ethtool_statistics(text)};
    });
    if (!counters) return counters;
    for (const auto& [name, value] : *counters) sum[name] += value;
    where += (where.empty() ? "" : ", ") + counters.where();
  }
  return {std::move(sum), std::move(where)};
}

}  // namespace tensorwire::host
