#include <algorithm>
#include <bit>
#include <cerrno>

#include "host/parse/counters.hpp"
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

bool belongs_to_rdma(const std::string& netdev, const std::vector<RdmaDevice>& rdma) {
  for (const RdmaDevice& device : rdma) {
    for (const RdmaPort& port : device.ports) {
      for (const Gid& gid : port.gids.value_or({})) {
        if (gid.netdev.is(netdev)) return true;
      }
    }
  }
  return false;
}

void read_details(Tree& tree, Netdev& netdev) {
  netdev.qos = read_qos(tree, netdev.name);
  netdev.statistics = fact_of_tool(tree, tool::kEthtoolStatistics, netdev.name,
                                   [](std::string_view text) { return std::optional{parse_ethtool_statistics(text)}; });
  const auto setting = [&](const char* name) {
    return number_in_file<int>(tree, "/proc/sys/net/ipv4/conf/" + netdev.name + "/" + name);
  };
  netdev.arp_ignore = setting("arp_ignore");
  netdev.arp_announce = setting("arp_announce");
  netdev.rp_filter = setting("rp_filter");
}

/// Host byte order, as /proc/net/route writes addresses.
Address ipv4_from(std::uint32_t word) {
  Address address;
  address.bytes[10] = address.bytes[11] = 0xff;
  for (unsigned i = 0; i < 4; ++i) address.bytes[12 + i] = static_cast<std::uint8_t>(word >> (8 * i));
  return address;
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
    netdev.has_rdma = belongs_to_rdma(name, rdma);
    if (netdev.has_rdma) read_details(tree, netdev);
    netdevs.push_back(std::move(netdev));
  }
  return {std::move(netdevs), names.where()};
}

std::vector<Subnet> read_subnets(Tree& tree) {
  std::vector<Subnet> subnets;
  // Iface Destination Gateway Flags RefCnt Use Metric Mask ...
  const Answer routes = tree.text("/proc/net/route");
  for (const std::string_view line : lines_of(routes.text)) {
    const auto words = words_of(line);
    if (words.size() < 8) continue;
    const auto network = number_in<std::uint32_t>(words[1], 16);
    const auto gateway = number_in<std::uint32_t>(words[2], 16);
    const auto mask = number_in<std::uint32_t>(words[7], 16);
    if (!network || !mask || *mask == 0 || gateway.value_or(0) != 0) continue;
    const Subnet subnet{std::string{words[0]}, ipv4_from(*network), static_cast<unsigned>(std::popcount(*mask))};
    if (std::ranges::find(subnets, subnet) == subnets.end()) subnets.push_back(subnet);
  }
  return subnets;
}

}  // namespace tensorwire::host
