// Which ranks are on which host: a pure view of what ranks say of themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tensorwire::comm {

/// Hosts in the order of their first ranks, the ranks of each in ascending order.
using Hosts = std::vector<std::vector<int>>;

/// Where a rank is: its host, and its number among the ranks there.
struct Seat {
  std::size_t host = 0;
  std::size_t local = 0;
};

/// @param identities by rank: what tells its host from others
[[nodiscard]] Hosts hosts_of(std::span<const std::uint64_t> identities);
[[nodiscard]] Seat seat_of(const Hosts& hosts, int rank);
/// Why an all-reduce cannot go inside the hosts, between them, and inside again. Empty: it can.
[[nodiscard]] std::string why_not_hierarchical(const Hosts& hosts);

}  // namespace tensorwire::comm
