// Devices made from network interfaces: which there are, and what the port of one looks like now. Reads only; nothing
// is claimed here (address_claim.hpp does that).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "softhca/hca.hpp"

namespace tensorwire::softhca {

/// True for an address of 127.0.0.0/8 (host order).
[[nodiscard]] constexpr bool is_loopback(std::uint32_t ipv4) noexcept { return (ipv4 >> 24) == 127; }

/// The largest RoCE MTU whose packets, all headers included, fit the interface: drivers reserve 96 bytes of headers, so
/// 1500 gives 1024 and 4200 gives 4096.
[[nodiscard]] transport::MtuCode active_mtu_for(std::uint32_t interface_mtu) noexcept;

/// The largest IP packet that the route from `source` to `destination` takes now: the interface's MTU, or less where a
/// route or a router on the way said so. 0 where there is no route.
[[nodiscard]] std::uint32_t route_mtu(const wire::Gid& source, const wire::Gid& destination,
                                      int interface_index) noexcept;

/// State, MTU and speed of the interface as they are now. An interface that has gone is an inactive port.
[[nodiscard]] PortInfo read_port(const std::string& interface);

/// An IPv4 address of an interface, host order.
struct InterfaceAddress {
  std::uint32_t ipv4 = 0;
  std::uint32_t netmask = 0;

  friend auto operator<=>(const InterfaceAddress&, const InterfaceAddress&) = default;
};

/// The addresses of an interface, up or down, sorted. @throws Error when interfaces cannot be read.
[[nodiscard]] std::vector<InterfaceAddress> interface_addresses(int interface_index);

/// The IPv6 addresses of an interface that a socket can be bound to now, sorted: not those whose uniqueness is still
/// being checked, or was refuted. @throws nothing: none where the system has no IPv6.
[[nodiscard]] std::vector<wire::Gid> bindable_ipv6_addresses(int interface_index);

/// True when an interface with `address` takes packets to `ipv4`: a loopback interface has its whole subnet.
[[nodiscard]] constexpr bool answers_to(const InterfaceAddress& address, std::uint32_t ipv4) noexcept {
  const std::uint32_t compared = is_loopback(ipv4) ? address.netmask : ~std::uint32_t{0};
  return ((address.ipv4 ^ ipv4) & compared) == 0;
}

/// The IPv4 address of the Hcas of this host that answer to `gid` (an IPv6 GID belongs to the first IPv4 address of its
/// interface); nothing when `gid` is no address of this host. `interface_index` tells link-local addresses apart.
[[nodiscard]] std::optional<std::uint32_t> local_hca_address(const wire::Gid& gid, int interface_index);

}  // namespace tensorwire::softhca
