// GIDs as verbs programs see them, and the rule that picks one. A RoCE port has a table of GIDs; only a routable RoCE
// v2 entry makes packets that switches and peers accept, and its index differs from host to host. The rule is a pure
// function of plain facts, so every case can be tested without a device.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tensorwire::verbs {

/// 128 bits in network order. RoCEv2 over IPv4 uses the IPv4-mapped form ::ffff:a.b.c.d.
struct Gid {
  std::array<std::uint8_t, 16> bytes{};

  auto operator<=>(const Gid&) const = default;

  [[nodiscard]] bool is_zero() const noexcept { return *this == Gid{}; }
  [[nodiscard]] bool is_ipv4() const noexcept;        ///< ::ffff:0:0/96
  [[nodiscard]] bool is_link_local() const noexcept;  ///< fe80::/10, and 169.254/16 mapped
};

/// "::ffff:127.0.0.1", "2001:db8::1".
[[nodiscard]] std::string to_string(const Gid& gid);
/// IPv6 text (the eight-group form of sysfs included) or IPv4 text, which is mapped.
[[nodiscard]] std::optional<Gid> parse_gid(std::string_view text);

enum class GidType : std::uint8_t { kInfiniband, kRoceV1, kRoceV2, kUnknown };
[[nodiscard]] std::string_view to_string(GidType type) noexcept;

/// One row of a GID table.
struct GidFacts {
  int index = 0;
  Gid gid;
  GidType type = GidType::kUnknown;
  std::string netdev;  ///< "eth2"; empty where unknown
};

/// What the caller asks for. All empty: the automatic choice.
struct GidWish {
  std::optional<int> index;  ///< this entry and no other
  std::string route_netdev;  ///< prefer entries of the interface that routes to the peer; empty: no preference
};

struct GidChoice {
  GidFacts entry;
  std::string reason;  ///< "the only routable RoCE v2 entry", "asked for"
};

/// Skips empty, link-local and RoCE v1 entries; of the rest prefers the route's interface, then IPv4, then the lowest
/// index.
/// @throws Error when nothing is left, or when the index asked for is empty, RoCE v1, or not in the table; the line
/// names the usable entries.
[[nodiscard]] GidChoice choose_gid(std::string_view device, std::span<const GidFacts> table, const GidWish& wish);

}  // namespace tensorwire::verbs
