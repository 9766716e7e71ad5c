#include "host/parse/network.hpp"

#include <bit>
#include <string>

#include "host/parse/text.hpp"

namespace tensorwire::host {

namespace {

/// Host byte order, as /proc/net/route writes addresses.
Address ipv4_from(std::uint32_t word) {
  Address address;
  address.bytes[10] = address.bytes[11] = 0xff;
  for (unsigned i = 0; i < 4; ++i) address.bytes[12 + i] = static_cast<std::uint8_t>(word >> (8 * i));
  return address;
}

/// 32 digits.
std::optional<Address> ipv6_from(std::string_view digits) {
  Address address;
  if (digits.size() != 2 * address.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < address.bytes.size(); ++i) {
    const auto byte = number_in<std::uint8_t>(digits.substr(2 * i, 2), 16);
    if (!byte) return std::nullopt;
    address.bytes[i] = *byte;
  }
  return address;
}

}  // namespace

std::optional<std::vector<Route>> parse_ipv4_routes(std::string_view text) {
  std::vector<Route> routes;
  // Iface Destination Gateway Flags RefCnt Use Metric Mask ...
  for (const std::string_view line : lines_of(text)) {
    const auto words = words_of(line);
    if (!words.empty() && words[0] == "Iface") continue;
    if (words.size() < 8) return std::nullopt;
    const auto network = number_in<std::uint32_t>(words[1], 16);
    const auto gateway = number_in<std::uint32_t>(words[2], 16);
    const auto mask = number_in<std::uint32_t>(words[7], 16);
    if (!network || !gateway || !mask) return std::nullopt;
    routes.push_back({std::string{words[0]}, ipv4_from(*network), static_cast<unsigned>(std::popcount(*mask)),
                      *gateway != 0 ? std::optional{ipv4_from(*gateway)} : std::nullopt});
  }
  return routes;
}

std::optional<std::vector<Route>> parse_ipv6_routes(std::string_view text) {
  constexpr std::uint32_t kGateway = 0x2;
  constexpr std::uint32_t kUnwanted = 0x80000000 | 0x200 | 0x00100000;  // local, refusing, anycast
  std::vector<Route> routes;
  // network length source length gateway metric references uses flags interface
  for (const std::string_view line : lines_of(text)) {
    const auto words = words_of(line);
    if (words.size() != 10) return std::nullopt;
    const auto network = ipv6_from(words[0]);
    const auto length = number_in<unsigned>(words[1], 16);
    const auto gateway = ipv6_from(words[4]);
    const auto flags = number_in<std::uint32_t>(words[8], 16);
    if (!network || !length || *length > 128 || !gateway || !flags) return std::nullopt;
    if ((*flags & kUnwanted) != 0 || network->bytes[0] == 0xff || network->is_ipv6_link_local()) continue;
    routes.push_back(
        {std::string{words[9]}, *network, *length, (*flags & kGateway) != 0 ? std::optional{*gateway} : std::nullopt});
  }
  return routes;
}

std::vector<Neighbour> parse_neighbours(std::string_view text) {
  std::vector<Neighbour> neighbours;
  for (const std::string_view line : lines_of(text)) {
    const auto words = words_of(line);
    const auto address = words.size() >= 4 && words[1] == "dev" ? parse_address(words[0]) : std::nullopt;
    if (address) neighbours.push_back({std::string{words[2]}, *address, std::string{words.back()}});
  }
  return neighbours;
}

}  // namespace tensorwire::host
