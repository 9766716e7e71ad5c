// The kernel's neighbours (ARP and IPv6 neighbour discovery), asked for by netlink.
#pragma once

#include <string>

#include "host/tree/tree.hpp"

namespace tensorwire::host {

/// In the format of `ip neigh show`, without link-layer addresses: "192.0.2.11 dev eth2 REACHABLE".
[[nodiscard]] Answer neighbours(const std::string& subject);

}  // namespace tensorwire::host
