// A GID: 128 bits that name a RoCE port. For RoCEv2 over IPv4 it is the IPv4-mapped IPv6 address ::ffff:a.b.c.d.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace tensorwire::wire {

struct Gid {
  std::array<std::uint8_t, 16> bytes{};

  auto operator<=>(const Gid&) const = default;

  [[nodiscard]] bool is_zero() const noexcept { return *this == Gid{}; }
  /// ::ffff:0:0/96
  [[nodiscard]] constexpr bool is_ipv4() const noexcept {
    std::uint8_t others = static_cast<std::uint8_t>(~bytes[10] | ~bytes[11]);
    for (std::size_t i = 0; i < 10; ++i) others |= bytes[i];
    return others == 0;
  }
  /// fe80::/10
  [[nodiscard]] constexpr bool is_link_local() const noexcept { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }
  /// The IPv4 address in host byte order; only for is_ipv4().
  [[nodiscard]] constexpr std::uint32_t ipv4() const noexcept {
    return (std::uint32_t{bytes[12]} << 24) | (std::uint32_t{bytes[13]} << 16) | (std::uint32_t{bytes[14]} << 8) |
           std::uint32_t{bytes[15]};
  }

  [[nodiscard]] static constexpr Gid from_ipv4(std::uint32_t host_order) noexcept {
    Gid gid;
    gid.bytes[10] = gid.bytes[11] = 0xff;
    for (std::size_t i = 0; i < 4; ++i) gid.bytes[12 + i] = static_cast<std::uint8_t>(host_order >> (24 - 8 * i));
    return gid;
  }
};

// In network order, as IPv6 headers and messages carry it.
inline void store_gid(std::byte* p, const Gid& gid) noexcept { std::memcpy(p, gid.bytes.data(), gid.bytes.size()); }
[[nodiscard]] inline Gid load_gid(const std::byte* p) noexcept {
  Gid gid;
  std::memcpy(gid.bytes.data(), p, gid.bytes.size());
  return gid;
}

/// "::ffff:127.0.0.1", "fe80::1": RFC 5952 text.
[[nodiscard]] std::string to_string(const Gid& gid);
/// Accepts IPv6 text, IPv4 text (mapped) and the 8-group form of sysfs.
[[nodiscard]] std::optional<Gid> parse_gid(std::string_view text);

/// The address that the GID stands for, as people write it: "127.0.0.1", "fe80::1".
[[nodiscard]] std::string address_text(const Gid& gid);

/// "127.0.0.1" from a host-order address.
[[nodiscard]] std::string ipv4_text(std::uint32_t host_order);

}  // namespace tensorwire::wire
