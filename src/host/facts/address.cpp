#include "host/facts/address.hpp"

#include <arpa/inet.h>

#include <algorithm>

namespace tensorwire::host {

namespace {

constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

}  // namespace

bool Address::is_ipv4() const noexcept { return std::equal(kMapped.begin(), kMapped.end(), bytes.begin()); }

bool Address::is_ipv6_link_local() const noexcept { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

bool Address::is_ipv4_link_local() const noexcept { return is_ipv4() && bytes[12] == 169 && bytes[13] == 254; }

bool Address::same_subnet(const Address& other, unsigned length) const noexcept {
  if (is_ipv4() != other.is_ipv4()) return false;
  const unsigned bits = std::min(is_ipv4() ? length + 96 : length, 128U);
  for (unsigned bit = 0; bit < bits; ++bit) {
    if (((bytes[bit / 8] ^ other.bytes[bit / 8]) >> (7 - bit % 8) & 1) != 0) return false;
  }
  return true;
}

std::string to_string(const Address& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.is_ipv4()) {
    inet_ntop(AF_INET, address.bytes.data() + 12, text, sizeof text);
  } else {
    inet_ntop(AF_INET6, address.bytes.data(), text, sizeof text);
  }
  return text;
}

std::optional<Address> parse_address(std::string_view text) {
  Address address;
  const std::string terminated{text};
  if (inet_pton(AF_INET6, terminated.c_str(), address.bytes.data()) == 1) return address;
  std::copy(kMapped.begin(), kMapped.end(), address.bytes.begin());
  if (inet_pton(AF_INET, terminated.c_str(), address.bytes.data() + 12) == 1) return address;
  return std::nullopt;
}

}  // namespace tensorwire::host
