#include "comm/gpu/hosts.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tensorwire::comm {

Hosts hosts_of(std::span<const std::uint64_t> identities) {
  Hosts hosts;
  for (std::size_t rank = 0; rank < identities.size(); ++rank) {
    const auto like = std::ranges::find_if(hosts, [&](const std::vector<int>& ranks) {
      return identities[static_cast<std::size_t>(ranks.front())] == identities[rank];
    });
    (like != hosts.end() ? *like : hosts.emplace_back()).push_back(static_cast<int>(rank));
  }
  return hosts;
}

Seat seat_of(const Hosts& hosts, int rank) {
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    const auto at = std::ranges::find(hosts[host], rank);
    if (at != hosts[host].end()) return {host, static_cast<std::size_t>(at - hosts[host].begin())};
  }
  return {};
}

std::string why_not_hierarchical(const Hosts& hosts) {
  if (hosts.size() < 2) return "all ranks are on one host";
  for (const std::vector<int>& ranks : hosts) {
    if (ranks.size() != hosts.front().size()) {
      return fmt::format("there are {} ranks on the host of rank {} and {} on that of rank {}", ranks.size(),
                         ranks.front(), hosts.front().size(), hosts.front().front());
    }
  }
  return hosts.front().size() < 2 ? "every rank is on a host of its own" : "";
}

}  // namespace tensorwire::comm
