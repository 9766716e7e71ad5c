#include "softhca/gid_table.hpp"

#include <algorithm>

#include "base/env.hpp"

namespace tensorwire::softhca {

namespace {

constexpr std::size_t kLinkLocalPlace = 0;
constexpr std::size_t kIpv4Place = 1;
constexpr std::size_t kFirstOtherPlace = 2;

}  // namespace

GidLayout gid_layout_from_environment() {
  const std::string layout = env::get_choice("TENSORWIRE_GID_LAYOUT", "v2", {"v2", "connectx"});
  return layout == "connectx" ? GidLayout::kConnectX : GidLayout::kV2Only;
}

/// Null when there is none left. A second link-local address stands with the others.
wire::Gid* GidTable::place_for(const wire::Gid& gid) noexcept {
  if (gid.is_ipv4()) return &addresses_[kIpv4Place];
  if (gid.is_link_local() && addresses_[kLinkLocalPlace].is_zero()) return &addresses_[kLinkLocalPlace];
  const auto free = std::find(addresses_.begin() + kFirstOtherPlace, addresses_.end(), wire::Gid{});
  return free == addresses_.end() ? nullptr : &*free;
}

void GidTable::update(std::span<const wire::Gid> bindable) {
  for (wire::Gid& known : addresses_) {
    if (std::ranges::find(bindable, known) == bindable.end()) known = {};
  }
  for (const wire::Gid& gid : bindable) {
    if (std::ranges::find(addresses_, gid) != addresses_.end()) continue;
    if (wire::Gid* const place = place_for(gid)) *place = gid;
  }
}

std::vector<GidEntry> GidTable::entries() const {
  std::vector<GidEntry> entries;
  for (const wire::Gid& gid : addresses_) {
    const bool there = !gid.is_zero();
    if (layout_ == GidLayout::kConnectX) entries.push_back({.gid = gid, .roce_v2 = false, .usable = false});
    entries.push_back({.gid = gid, .roce_v2 = true, .usable = there});
  }
  return entries;
}

}  // namespace tensorwire::softhca
