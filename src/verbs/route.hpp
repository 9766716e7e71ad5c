// Which interface the kernel would use towards an address: to choose the device and GID on the route to a peer.
#pragma once

#include <optional>
#include <string>

#include "verbs/gid.hpp"

namespace tensorwire::verbs {

struct Route {
  Gid source;          ///< the local address that packets to the peer would carry
  std::string netdev;  ///< the interface that has this address
};

/// Asks the routing table; sends nothing. nullopt when there is no route.
[[nodiscard]] std::optional<Route> route_to(const Gid& peer);

}  // namespace tensorwire::verbs
