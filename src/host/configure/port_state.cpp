#include "host/configure/port_state.hpp"

#include <algorithm>

#include "host/facts/host.hpp"
#include "host/read/parts.hpp"
#include "host/read/read.hpp"

namespace tensorwire::host {
namespace {

/// Which RDMA device a network interface belongs to: the one on the same PCI function that has a GID of it.
void find_device(Tree& tree, PortState& state) {
  const auto names = names_in(tree, "/sys/class/infiniband");
  for (const std::string& name : names.value_or({})) {
    const std::string ports = "/sys/class/infiniband/" + name + "/ports";
    for (const std::string& port : names_in(tree, ports).value_or({})) {
      const std::string ndevs = ports + "/" + port + "/gid_attrs/ndevs";
      for (const std::string& index : names_in(tree, ndevs).value_or({})) {
        if (!line_in(tree, ndevs + "/" + index).is(state.netdev)) continue;
        state.device = name;
        state.port = number_in<unsigned>(port).value_or(1);
        return;
      }
    }
  }
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
  find_device(tree, state);
  state.mtu = number_in_file<unsigned>(tree, folder + "/mtu");
  state.qos = read_qos(tree, netdev);
  state.apps = fact_of_tool(tree, tool::kDcbApp, netdev, parse_dcb_app);
  state.cm_tos = read_cm_tos(tree, state);
  state.numa_balancing = number_in_file<unsigned>(tree, "/proc/sys/kernel/numa_balancing");
  return state;
}

}  // namespace tensorwire::host
