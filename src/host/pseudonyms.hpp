// Addresses of a recording under other names. Two addresses that share their first n bits share the first n bits of
// their pseudonyms, so subnets stay subnets and every verdict stays the same; with the same key, on other hosts too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "host/facts/address.hpp"
#include "host/tree/recording.hpp"

namespace tensorwire::host {

class Pseudonyms {
 public:
  /// Hosts that are to be compared need the same key; an empty one stands for a random one.
  explicit Pseudonyms(std::string_view key);

  /// What says which kind of address it is (link-local, loopback, the first 16 bits of IPv6) stays.
  [[nodiscard]] Address of(const Address& address) const;
  /// All IPv4 addresses in a text.
  [[nodiscard]] std::string in_text(std::string_view text) const;
  /// All addresses in what a tool printed, IPv6 ones too.
  [[nodiscard]] std::string in_output(std::string_view text) const;
  /// GID tables, routes, neighbours, and addresses in settings.
  void apply(Recording& recording) const;

 private:
  [[nodiscard]] std::string in_routes(std::string_view routes) const;
  [[nodiscard]] std::string in_ipv6_routes(std::string_view routes) const;

  std::uint64_t key_ = 0;
};

}  // namespace tensorwire::host
