// A GID: 128 bits that name a RoCE port. For RoCEv2 over IPv4 it is the IPv4-mapped IPv6 address ::ffff:a.b.c.d.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tensorwire::wire {

struct Gid {
  std::array<std::uint8_t, 16> bytes{};

  auto operator<=>(const Gid&) const = default;

  [[nodiscard]] bool is_zero() const noexcept { return *this == Gid{}; }
  [[nodiscard]] bool is_ipv4() const noexcept;        ///< ::ffff:0:0/96
  [[nodiscard]] bool is_link_local() const noexcept;  ///< fe80::/10
  /// The IPv4 address in host byte order; only for is_ipv4().
  [[nodiscard]] std::uint32_t ipv4() const noexcept;

  [[nodiscard]] static Gid from_ipv4(std::uint32_t host_order) noexcept;
};

/// "::ffff:127.0.0.1", "fe80::1": RFC 5952 text.
[[nodiscard]] std::string to_string(const Gid& gid);
/// Accepts IPv6 text, IPv4 text (mapped) and the 8-group form of sysfs.
[[nodiscard]] std::optional<Gid> parse_gid(std::string_view text);

/// "127.0.0.1" from a host-order address.
[[nodiscard]] std::string ipv4_text(std::uint32_t host_order);

}  // namespace tensorwire::wire
