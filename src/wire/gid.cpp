#include "wire/gid.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace tensorwire::wire {

namespace {

using Text = std::array<char, INET6_ADDRSTRLEN>;

/// The text with a terminating zero, as inet_pton wants it; false where it cannot be an address.
bool terminate(std::string_view text, Text& out) noexcept {
  if (text.size() >= out.size() || text.find('\0') != std::string_view::npos) return false;
  *std::copy(text.begin(), text.end(), out.begin()) = '\0';
  return true;
}

std::array<std::uint8_t, 4> octets(std::uint32_t host_order) noexcept {
  return {static_cast<std::uint8_t>(host_order >> 24), static_cast<std::uint8_t>(host_order >> 16),
          static_cast<std::uint8_t>(host_order >> 8), static_cast<std::uint8_t>(host_order)};
}

}  // namespace

std::string to_string(const Gid& gid) {
  Text text{};
  inet_ntop(AF_INET6, gid.bytes.data(), text.data(), text.size());
  return text.data();
}

std::optional<Gid> parse_gid(std::string_view text) {
  Text terminated{};
  if (!terminate(text, terminated)) return std::nullopt;
  Gid gid;
  if (inet_pton(AF_INET6, terminated.data(), gid.bytes.data()) == 1) return gid;
  in_addr address{};
  if (inet_pton(AF_INET, terminated.data(), &address) == 1) return Gid::from_ipv4(ntohl(address.s_addr));
  return std::nullopt;
}

std::string address_text(const Gid& gid) { return gid.is_ipv4() ? ipv4_text(gid.ipv4()) : to_string(gid); }

std::string ipv4_text(std::uint32_t host_order) {
  const auto address = octets(host_order);
  std::string text;
  for (const std::uint8_t octet : address) {
    if (!text.empty()) text += '.';
    text += std::to_string(octet);
  }
  return text;
}

}  // namespace tensorwire::wire
