#include "verbs/gid.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

#include "base/error.hpp"

namespace tensorwire::verbs {

namespace {

constexpr std::array<std::uint8_t, 12> kMappedPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool is_routable_v2(const GidFacts& entry) {
  return entry.type == GidType::kRoceV2 && !entry.gid.is_zero() && !entry.gid.is_link_local();
}

/// Why an entry cannot carry routed RoCEv2 packets; empty when it can.
std::string objection(const GidFacts& entry) {
  if (entry.gid.is_zero()) return "it is empty";
  if (entry.type != GidType::kRoceV2) return fmt::format("it is {}, not RoCE v2", to_string(entry.type));
  return {};
}

std::string usable_entries_text(std::span<const GidFacts> table) {
  std::string text;
  for (const GidFacts& entry : table) {
    if (!is_routable_v2(entry)) continue;
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", entry.index, to_string(entry.gid));
  }
  return text;
}

GidChoice asked_for(std::string_view device, std::span<const GidFacts> table, int index) {
  const std::string usable = usable_entries_text(table);
  const auto found = std::ranges::find(table, index, &GidFacts::index);
  const std::string why = found == table.end() ? "it is empty" : objection(*found);
  if (!why.empty()) {
    throw Error{fmt::format("use GID index {} of {}", index, device), why,
                usable.empty() ? "The device has no routable RoCE v2 GID: give its interface an IP address"
                               : "Usable entries: " + usable};
  }
  return {*found, "asked for"};
}

/// Smaller is better: the route's interface, then IPv4 (what switches' DSCP trust is configured for), then the index.
auto rank_of(const GidFacts& entry, const std::string& route_netdev) {
  const bool off_route = !route_netdev.empty() && entry.netdev != route_netdev;
  return std::tuple{off_route, !entry.gid.is_ipv4(), entry.index};
}

std::string reason_for(const GidFacts& best, std::size_t candidates, const std::string& route_netdev) {
  if (candidates == 1) return "the only routable RoCE v2 entry";
  if (!route_netdev.empty() && best.netdev == route_netdev) {
    return fmt::format("RoCE v2 on {}, which routes to the peer", route_netdev);
  }
  return fmt::format("the first of {} routable RoCE v2 entries{}", candidates, best.gid.is_ipv4() ? ", IPv4" : "");
}

}  // namespace

bool Gid::is_ipv4() const noexcept { return std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), bytes.begin()); }

bool Gid::is_link_local() const noexcept {
  if (is_ipv4()) return bytes[12] == 169 && bytes[13] == 254;
  return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

std::string to_string(const Gid& gid) {
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(AF_INET6, gid.bytes.data(), text, sizeof text);
}

std::optional<Gid> parse_gid(std::string_view text) {
  const std::string terminated{text};
  Gid gid;
  if (inet_pton(AF_INET6, terminated.c_str(), gid.bytes.data()) == 1) return gid;
  std::ranges::copy(kMappedPrefix, gid.bytes.begin());
  if (inet_pton(AF_INET, terminated.c_str(), gid.bytes.data() + kMappedPrefix.size()) == 1) return gid;
  return std::nullopt;
}

std::string_view to_string(GidType type) noexcept {
  switch (type) {
    case GidType::kInfiniband:
      return "InfiniBand";
    case GidType::kRoceV1:
      return "RoCE v1";
    case GidType::kRoceV2:
      return "RoCE v2";
    case GidType::kUnknown:
      break;
  }
  return "of unknown type";
}

GidChoice choose_gid(std::string_view device, std::span<const GidFacts> table, const GidWish& wish) {
  if (wish.index) return asked_for(device, table, *wish.index);

  std::vector<const GidFacts*> candidates;
  for (const GidFacts& entry : table) {
    if (is_routable_v2(entry)) candidates.push_back(&entry);
  }
  if (candidates.empty()) {
    throw Error{fmt::format("choose a GID of {}", device),
                fmt::format("none of its {} GIDs is a routable RoCE v2 address", table.size()),
                "Give its network interface an IP address (ip addr add) and look at the table with show_gids"};
  }
  const auto best = std::ranges::min_element(candidates, {},
                                             [&](const GidFacts* entry) { return rank_of(*entry, wish.route_netdev); });
  return {**best, reason_for(**best, candidates.size(), wish.route_netdev)};
}

}  // namespace tensorwire::verbs
