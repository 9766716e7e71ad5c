#include "host/configure/port_state.hpp"

#include <algorithm>

#include "host/facts/host.hpp"
#include "host/read/parts.hpp"
#include "host/read/read.hpp"

namespace tensorwire::host {
namespace {

struct RdmaNetdev {
  std::string netdev, device;
  unsigned port = 1;
};

/// The interfaces that RDMA devices have GIDs of.
std::vector<RdmaNetdev> rdma_netdevs(Tree& tree) {
  std::vector<RdmaNetdev> all;
  for (const std::string& name : names_in(tree, "/sys/class/infiniband").value_or({})) {
    const std::string ports = "/sys/class/infiniband/" + name + "/ports";
    for (const std::string& port : names_in(tree, ports).value_or({})) {
      const std::string ndevs = ports + "/" + port + "/gid_attrs/ndevs";
      for (const std::string& index : names_in(tree, ndevs).value_or({})) {
        const auto netdev = line_in(tree, ndevs + "/" + index);
        if (!netdev || std::ranges::count(all, *netdev, &RdmaNetdev::netdev) != 0) continue;
        all.push_back({*netdev, name, number_in<unsigned>(port).value_or(1)});
      }
    }
  }
  return all;
}

Fact<bool> shares_subnet(const Fact<std::vector<Route>>& routes, const std::vector<RdmaNetdev>& all,
                         const std::string& netdev) {
  return routes.then([&](const std::vector<Route>& list) {
    const auto connected = [](const Route& route) {
      return !route.gateway && route.length > 0 && route.network.is_ipv4();
    };
    return std::ranges::any_of(list, [&](const Route& own) {
      return own.netdev == netdev && connected(own) && std::ranges::any_of(list, [&](const Route& other) {
               return other.netdev != netdev && connected(other) && other.network == own.network &&
                      other.length == own.length && std::ranges::count(all, other.netdev, &RdmaNetdev::netdev) != 0;
             });
    });
  });
}

Fact<SysctlPair> sysctl_of(Tree& tree, const std::string& netdev, const std::string& name) {
  const std::string folder = "/proc/sys/net/ipv4/conf/";
  const auto of_all = number_in_file<unsigned>(tree, folder + "all/" + name);
  return number_in_file<unsigned>(tree, folder + netdev + "/" + name).then([&of_all](unsigned own) {
    return SysctlPair{own, of_all.value_or(0)};
  });
}

/// What mlx5's debugfs says where no file of MLNX_OFED does.
void read_debugfs(Tree& tree, PortState& state) {
  if (state.qos.cnp_dscp || state.ofed || state.pci.empty() || !state.driver.is("mlx5_core")) return;
  state.qos.cnp_dscp = number_in_file<unsigned>(tree, "/sys/kernel/debug/mlx5/" + state.pci + "/cc_params/np_cnp_dscp");
}

/// The kernel makes the files of a device when somebody makes its folder; until then the value is 0.
Fact<unsigned> read_cm_tos(Tree& tree, const PortState& state) {
  const std::string folder = "/sys/kernel/config/rdma_cm";
  const Answer devices = tree.names(folder);
  if (state.device.empty() || !devices.ok()) {
    return Fact<unsigned>::unknown(state.device.empty() ? "there is no RDMA device" : devices.why(), folder);
  }
  if (std::ranges::count(lines_of(devices.text), state.device) == 0) return {0, folder};
  return number_in_file<unsigned>(
      tree, folder + "/" + state.device + "/ports/" + std::to_string(state.port) + "/default_roce_tos");
}

}  // namespace

/// Destination and mask 0 in /proc/net/route; destination 0 of 0 bits in /proc/net/ipv6_route.
bool has_default_route(Tree& tree, const std::string& netdev) {
  const Answer ipv4 = tree.text("/proc/net/route");
  const Answer ipv6 = tree.text("/proc/net/ipv6_route");
  const auto is_ipv4 = [&](std::string_view line) {
    const auto words = words_of(line);
    return words.size() >= 8 && words[0] == netdev && words[1] == "00000000" && words[7] == "00000000";
  };
  const auto is_ipv6 = [&](std::string_view line) {
    const auto words = words_of(line);
    return words.size() == 10 && words[9] == netdev && words[1] == "00" &&
           words[0].find_first_not_of('0') == std::string_view::npos;
  };
  return std::ranges::any_of(lines_of(ipv4.text), is_ipv4) || std::ranges::any_of(lines_of(ipv6.text), is_ipv6);
}

PortState read_port_state(Tree& tree, const std::string& netdev) {
  const std::string folder = "/sys/class/net/" + netdev;
  PortState state;
  state.netdev = netdev;
  state.driver = target_name(tree, folder + "/device/driver");
  state.ofed = tree.names(folder + "/ecn").ok();
  state.virtual_function = tree.target(folder + "/device/physfn").ok();
  state.lldpad = tree.tool(tool::kDaemons, "").text.find("lldpad") != std::string::npos;
  state.pci = target_name(tree, folder + "/device").value_or("");
  const auto netdevs = rdma_netdevs(tree);
  if (const auto found = std::ranges::find(netdevs, netdev, &RdmaNetdev::netdev); found != netdevs.end()) {
    state.device = found->device;
    state.port = found->port;
    RdmaPort port;
    port.counters = counters_in(
        tree, "/sys/class/infiniband/" + state.device + "/ports/" + std::to_string(state.port) + "/hw_counters");
    state.congestion = congestion_counters(port);
  }
  state.shares_subnet = shares_subnet(read_routes(tree), netdevs, netdev);
  state.mtu = number_in_file<unsigned>(tree, folder + "/mtu");
  state.qos = read_qos(tree, netdev);
  state.apps = fact_of_tool(tree, tool::kDcbApp, netdev, parse_dcb_app);
  state.cm_tos = read_cm_tos(tree, state);
  read_debugfs(tree, state);
  state.arp_ignore = sysctl_of(tree, netdev, "arp_ignore");
  state.arp_announce = sysctl_of(tree, netdev, "arp_announce");
  state.rp_filter = sysctl_of(tree, netdev, "rp_filter");
  state.numa_balancing = number_in_file<unsigned>(tree, "/proc/sys/kernel/numa_balancing");
  return state;
}

}  // namespace tensorwire::host
