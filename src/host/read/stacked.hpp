// Interfaces that lie on one another: a VLAN on a port, a bond or a bridge on several.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "host/facts/rdma.hpp"
#include "host/tree/tree.hpp"

namespace tensorwire::host {

/// The ports that packets of `netdev` go through: those at the bottom below it, or itself.
[[nodiscard]] std::vector<std::string> ports_below(Tree& tree, const std::string& netdev);
/// `netdev` and all that lies on it, directly or not.
[[nodiscard]] std::vector<std::string> with_all_above(Tree& tree, const std::string& netdev);

/// What their drivers count, as `ethtool -S` shows it, added up. Unknown if it is of one of them.
[[nodiscard]] Fact<Counters> statistics_of(Tree& tree, std::span<const std::string> netdevs);

}  // namespace tensorwire::host
