// RDMA devices as tools print them: `ibv_devinfo -v` (what libibverbs shows) and show_gids (of mlnx-tools).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/facts/rdma.hpp"

namespace tensorwire::host {

struct PrintedPort {
  unsigned number = 1;
  std::string state;  ///< "ACTIVE"
  std::optional<unsigned> active_mtu;
  std::optional<LinkLayer> link_layer;
  std::vector<Gid> gids;
};

struct PrintedDevice {
  std::string name;
  std::string firmware;
  std::vector<PrintedPort> ports;
};

/// `ibv_devinfo`; with -v GIDs are among it. `where` is that of the facts in GIDs.
[[nodiscard]] std::vector<PrintedDevice> parse_ibv_devinfo(std::string_view text, const std::string& where);

/// `show_gids`: it leaves out empty entries and bare link-local ones.
[[nodiscard]] std::vector<PrintedDevice> parse_show_gids(std::string_view text, const std::string& where);

}  // namespace tensorwire::host
