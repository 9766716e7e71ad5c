#include <algorithm>
#include <cerrno>

#include "host/parse/counters.hpp"
#include "host/parse/network.hpp"
#include "host/read/parts.hpp"
#include "host/read/read.hpp"

namespace tensorwire::host {

namespace {

const std::string kNetClass = "/sys/class/net/";

std::string bond_of(Tree& tree, const std::string& netdev) {
  return tree.names(kNetClass + netdev + "/bonding_slave").ok()
             ? target_name(tree, kNetClass + netdev + "/master").value_or("")
             : "";
}

std::vector<std::string> slaves_of(Tree& tree, const std::string& netdev) {
  const std::string line = line_in(tree, kNetClass + netdev + "/bonding/slaves").value_or("");
  const auto names = words_of(line);
  return {names.begin(), names.end()};
}

/// The RDMA device of an interface; null where it has none.
const RdmaDevice* rdma_of(const std::string& netdev, const std::vector<RdmaDevice>& rdma) {
  for (const RdmaDevice& device : rdma) {
    for (const RdmaPort& port : device.ports) {
      for (const Gid& gid : port.gids.value_or({})) {
        if (gid.netdev.is(netdev)) return &device;
      }
    }
  }
  return nullptr;
}

void read_details(Tree& tree, const RdmaDevice& device, Netdev& netdev) {
  netdev.ofed = tree.names(kNetClass + netdev.name + "/ecn").ok();
  netdev.qos = read_qos(tree, netdev.name, &device);
  netdev.statistics = fact_of_tool(tree, tool::kEthtoolStatistics, netdev.name,
                                   [](std::string_view text) { return std::optional{parse_ethtool_statistics(text)}; });
  // The larger of the interface's own and that of all counts.
  const auto setting = [&](const char* name) {
    const std::string folder = "/proc/sys/net/ipv4/conf/";
    const auto of_all = number_in_file<int>(tree, folder + "all/" + name);
    return number_in_file<int>(tree, folder + netdev.name + "/" + name).then([&of_all](int own) {
      return std::max(own, of_all.value_or(own));
    });
  };
  netdev.arp_ignore = setting("arp_ignore");
  netdev.arp_announce = setting("arp_announce");
  netdev.rp_filter = setting("rp_filter");
}

}  // namespace

Fact<std::vector<Netdev>> read_netdevs(Tree& tree, const std::vector<RdmaDevice>& rdma) {
  const auto names = names_in(tree, "/sys/class/net");
  if (!names) return Fact<std::vector<Netdev>>::unknown(names.why(), names.where());
  std::vector<Netdev> netdevs;
  for (const std::string& name : *names) {
    Netdev netdev;
    netdev.name = name;
    netdev.mtu = number_in_file<unsigned>(tree, kNetClass + name + "/mtu");
    if (!netdev.mtu && netdev.mtu.why().find("ENOTDIR") != std::string::npos) continue;  // bonding_masters
    netdev.state = line_in(tree, kNetClass + name + "/operstate");
    netdev.pci_address = target_name(tree, kNetClass + name + "/device");
    netdev.is_virtual_function = tree.target(kNetClass + name + "/device/physfn").ok();
    netdev.bond = bond_of(tree, name);
    netdev.slaves = slaves_of(tree, name);
    const RdmaDevice* device = rdma_of(name, rdma);
    netdev.has_rdma = device != nullptr;
    if (device != nullptr) read_details(tree, *device, netdev);
    netdevs.push_back(std::move(netdev));
  }
  return {std::move(netdevs), names.where()};
}

Fact<std::vector<Route>> read_routes(Tree& tree) {
  auto routes = fact_in_file(tree, "/proc/net/route", parse_ipv4_routes);
  const auto ipv6 = fact_in_file(tree, "/proc/net/ipv6_route", parse_ipv6_routes);
  if (!routes || !ipv6) return routes;  // a kernel without IPv6 has no such file
  std::vector<Route> all = *routes;
  all.insert(all.end(), ipv6->begin(), ipv6->end());
  return {std::move(all), routes.where()};
}

Fact<std::vector<Neighbour>> read_neighbours(Tree& tree) {
  return fact_of_tool(tree, tool::kNeighbours, "",
                      [](std::string_view text) { return std::optional{parse_neighbours(text)}; });
}

}  // namespace tensorwire::host
