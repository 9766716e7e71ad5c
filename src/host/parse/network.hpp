// The network as /proc and `ip` print it: routes and neighbours.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "host/facts/netdev.hpp"

namespace tensorwire::host {

/// /proc/net/route; nothing where the text is none.
[[nodiscard]] std::optional<std::vector<Route>> parse_ipv4_routes(std::string_view text);
/// /proc/net/ipv6_route, without local, multicast and link-local ones and those that refuse.
[[nodiscard]] std::optional<std::vector<Route>> parse_ipv6_routes(std::string_view text);

/// `ip neigh show`: "192.0.2.11 dev eth2 lladdr 52:54:00:77:00:02 REACHABLE". Other lines are left out.
[[nodiscard]] std::vector<Neighbour> parse_neighbours(std::string_view text);

}  // namespace tensorwire::host
