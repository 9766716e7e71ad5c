#include "softhca/gid_table.hpp"

#include "base/env.hpp"

namespace tensorwire::softhca {

GidLayout gid_layout_from_environment() {
  const std::string layout = env::get_choice("TENSORWIRE_GID_LAYOUT", "v2", {"v2", "connectx"});
  return layout == "connectx" ? GidLayout::kConnectX : GidLayout::kV2Only;
}

std::vector<GidEntry> make_gid_table(std::uint32_t ipv4, GidLayout layout) {
  const wire::Gid gid = wire::Gid::from_ipv4(ipv4);
  const GidEntry empty{};
  const GidEntry v1{.gid = gid, .roce_v2 = false, .usable = false};
  const GidEntry v2{.gid = gid, .roce_v2 = true, .usable = true};
  if (layout == GidLayout::kConnectX) return {empty, empty, v1, v2};
  return {empty, v2};
}

}  // namespace tensorwire::softhca
