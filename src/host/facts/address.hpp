// A GID or IP address as plain bytes, with what a rule asks of it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tensorwire::host {

/// 128 bits in network order; IPv4 in its mapped form ::ffff:a.b.c.d, as RoCE writes it.
struct Address {
  std::array<std::uint8_t, 16> bytes{};

  bool operator==(const Address&) const = default;

  [[nodiscard]] bool is_zero() const noexcept { return *this == Address{}; }
  [[nodiscard]] bool is_ipv4() const noexcept;             ///< ::ffff:0:0/96
  [[nodiscard]] bool is_ipv6_link_local() const noexcept;  ///< fe80::/10
  [[nodiscard]] bool is_ipv4_link_local() const noexcept;  ///< 169.254/16: no DHCP server answered
  /// Packets from it can be answered from another subnet.
  [[nodiscard]] bool is_routable() const noexcept {
    return !is_zero() && !is_ipv6_link_local() && !is_ipv4_link_local();
  }
  /// The first `length` bits, counted as of an IPv4 address where it is one, equal those of `other`.
  [[nodiscard]] bool same_subnet(const Address& other, unsigned length) const noexcept;
};

/// "192.0.2.10", "2001:db8::1".
[[nodiscard]] std::string to_string(const Address& address);
/// IPv6 text (the 39 characters of sysfs included) or IPv4 text, which is mapped.
[[nodiscard]] std::optional<Address> parse_address(std::string_view text);

}  // namespace tensorwire::host
