// What a port is like now, as far as configuring it goes: read from a tree, live or recorded.
#pragma once

#include <string>

#include "host/fact.hpp"
#include "host/facts/netdev.hpp"
#include "host/parse/qos_text.hpp"
#include "host/rules/queries.hpp"
#include "host/tree/tree.hpp"

namespace tensorwire::host {

/// A setting of net.ipv4.conf: the interface's own, and that of all.
struct SysctlPair {
  unsigned own = 0;
  unsigned of_all = 0;
};

struct PortState {
  std::string netdev;
  Fact<std::string> driver;  ///< of the interface: "mlx5_core"
  bool ofed = false;         ///< MLNX_OFED's files are there
  std::string device;        ///< RDMA device and port that the interface belongs to; empty: none
  unsigned port = 1;
  std::string pci;  ///< "0000:3d:00.0"
  bool virtual_function = false;
  bool lldpad = false;  ///< runs, and would set everything its own way
  Fact<unsigned> mtu;
  Qos qos;
  Fact<DcbApp> apps;  ///< which entries there are, besides what they come to (qos)
  Fact<unsigned> cm_tos;
  Fact<unsigned> numa_balancing;
  CongestionCounters congestion;
  Fact<bool> shares_subnet;  ///< with another interface that has an RDMA device
  Fact<SysctlPair> arp_ignore, arp_announce, rp_filter;
};

[[nodiscard]] bool has_default_route(Tree& tree, const std::string& netdev);
[[nodiscard]] PortState read_port_state(Tree& tree, const std::string& netdev);

}  // namespace tensorwire::host
