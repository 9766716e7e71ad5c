// Devices made from network interfaces: which there are, and what the port of one looks like now. Reads only; nothing
// is claimed here (address_claim.hpp does that).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "softhca/hca.hpp"

namespace tensorwire::softhca {

/// True for an address of 127.0.0.0/8 (host order).
[[nodiscard]] constexpr bool is_loopback(std::uint32_t ipv4) noexcept { return (ipv4 >> 24) == 127; }

/// The largest RoCE MTU whose packets, all headers included, fit the interface: drivers reserve 96 bytes of headers, so
/// 1500 gives 1024 and 4200 gives 4096.
[[nodiscard]] transport::MtuCode active_mtu_for(std::uint32_t interface_mtu) noexcept;

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

/// True when an interface with `address` takes packets to `ipv4`: a loopback interface has its whole subnet.
[[nodiscard]] constexpr bool answers_to(const InterfaceAddress& address, std::uint32_t ipv4) noexcept {
  const std::uint32_t compared = is_loopback(ipv4) ? address.netmask : ~std::uint32_t{0};
  return ((address.ipv4 ^ ipv4) & compared) == 0;
}

/// True when this host has `ipv4` as an address (all of 127.0.0.0/8 counts).
[[nodiscard]] bool is_local_address(std::uint32_t ipv4);

}  // namespace tensorwire::softhca
