// Interfaces, subnets and bonds below the RDMA devices.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "host/parse/text.hpp"
#include "host/rules/groups.hpp"
#include "host/rules/queries.hpp"
#include "host/rules/rails.hpp"

namespace tensorwire::host {

namespace {

/// ARP answers stay on the interface that owns the address, and answers to its own packets are let in.
bool is_strict(const Netdev& netdev) {
  return netdev.arp_ignore.value_or(0) >= 1 && netdev.arp_announce.value_or(0) == 2 &&
         netdev.rp_filter.value_or(0) != 1;
}

/// The address of an interface in a subnet, as its GID says it.
std::string address_in(const PortView& view, const Subnet& subnet) {
  for (const Gid& gid : view.port->gids.value_or({})) {
    if (gid.netdev.is(view.netdev->name) && gid.address.same_subnet(subnet.network, subnet.length))
      return to_string(gid.address);
  }
  return "ADDRESS";
}

/// Settings of ARP, and a routing table for each interface, so that its packets leave where they belong.
std::string keep_apart(const std::vector<const PortView*>& views, const Subnet& subnet) {
  std::string commands = "sysctl -w";
  for (const PortView* view : views)
    commands +=
        fmt::format(" net.ipv4.conf.{0}.arp_ignore=1 net.ipv4.conf.{0}.arp_announce=2 net.ipv4.conf.{0}.rp_filter=2",
                    view->netdev->name);
  unsigned table = 101;
  for (const PortView* view : views) {
    const std::string address = address_in(*view, subnet);
    commands += fmt::format("; ip route add {0}/{1} dev {2} src {3} table {4}; ip rule add from {3} table {4}",
                            to_string(subnet.network), subnet.length, view->netdev->name, address, table++);
  }
  return commands;
}

void several_in_one_subnet(const Host& host, Judgement& judgement) {
  const auto ports = qos_ports(host);
  for (const Subnet& subnet : host.subnets) {
    std::vector<std::string> names;
    std::vector<const PortView*> views;
    bool strict = true;
    for (const PortView& view : ports) {
      // IPv6 answers for an address only where it is.
      const bool inside = subnet.network.is_ipv4() && std::ranges::any_of(host.subnets, [&](const Subnet& other) {
                            return other.netdev == view.netdev->name && other.network == subnet.network &&
                                   other.length == subnet.length;
                          });
      if (!inside || !view.netdev->arp_ignore) continue;
      names.push_back(view.netdev->name);
      views.push_back(&view);
      strict = strict && is_strict(*view.netdev);
    }
    if (names.size() < 2 || strict || names.front() != subnet.netdev) continue;
    judgement.found(
        Confidence::kLikely, fmt::format("{}/{}", to_string(subnet.network), subnet.length),
        "several RDMA interfaces are in one subnet, and Linux answers ARP for any of its addresses on all of "
        "them: the traffic of all gathers on one port, or goes to one that drops it",
        "a subnet for each rail; or " + keep_apart(views, subnet),
        {fmt::format("/proc/net/route: {}/{} on {}", to_string(subnet.network), subnet.length,
                     fmt::join(names, ", "))});
  }
}

void bond_with_one_queue_pair(const Host& host, Judgement& judgement) {
  const Setting* count = host.process.setting("NCCL_IB_QPS_PER_CONNECTION");
  if (count != nullptr && c_number(count->value).value_or(1) >= 2) return;
  for (const PortView& view : qos_ports(host)) {
    if (view.netdev->slaves.size() < 2) continue;
    judgement.found(
        Confidence::kLikely, view.netdev->name,
        "the device is a bond, and one queue pair is sent over one member only: a connection has the rate of "
        "one link",
        "NCCL_IB_QPS_PER_CONNECTION=2 (or more); better no bond, one device for each port",
        {fmt::format("/sys/class/net/{}/bonding/slaves: {}", view.netdev->name, fmt::join(view.netdev->slaves, " ")),
         count != nullptr ? shown("NCCL_IB_QPS_PER_CONNECTION", *count) : "NCCL_IB_QPS_PER_CONNECTION: not set (1)"});
  }
}

void wrong_socket_interface(const Host& host, Judgement& judgement) {
  for (const char* name : {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
    const Setting* setting = host.process.setting(name);
    if (setting == nullptr || !host.netdevs || setting->value.empty() || setting->value.starts_with('^')) continue;
    std::string_view list = setting->value;
    const bool exact = list.starts_with('=');
    if (exact) list.remove_prefix(1);
    bool reachable = false;
    for (const std::string_view wanted : split(list, ',')) {
      for (const Netdev& netdev : *host.netdevs) {
        const bool named = exact || name[0] == 'G' ? netdev.name == wanted : netdev.name.starts_with(wanted);
        const bool local = netdev.name == "lo" || netdev.name.starts_with("docker") || netdev.name.starts_with("veth");
        reachable = reachable || (named && !local);
      }
    }
    if (reachable) continue;
    judgement.found(
        Confidence::kCertain, name,
        "no interface of that name leads to another host: ranks cannot meet (connection refused, or no route "
        "to host)",
        fmt::format("{}={} (the interface of the default route)", name, meeting_interface(host)),
        {shown(name, *setting)});
  }
}

void crossed_rails(const Host& host, Judgement& judgement) {
  const Setting* cross = host.process.setting("NCCL_CROSS_NIC");
  if (cross == nullptr || c_number(cross->value).value_or(0) != 1) return;
  const auto ports = qos_ports(host);
  std::vector<Subnet> subnets;
  for (const PortView& view : ports) {
    for (const Subnet& subnet : host.subnets) {
      const bool seen = std::ranges::any_of(subnets, [&](const Subnet& other) {
        return other.network == subnet.network && other.length == subnet.length;
      });
      if (subnet.netdev == view.netdev->name && subnet.network.is_ipv4() && !seen) subnets.push_back(subnet);
    }
  }
  if (subnets.size() < 2) return;
  std::vector<std::string> seen{shown("NCCL_CROSS_NIC", *cross)};
  for (const Subnet& subnet : subnets)
    seen.push_back(
        fmt::format("/proc/net/route: {}/{} on {}", to_string(subnet.network), subnet.length, subnet.netdev));
  judgement.found(
      Confidence::kPossible, "NCCL_CROSS_NIC",
      "the rails are subnets of their own, and NCCL is told to connect NICs of different rails: where no router "
      "joins them, ibv_modify_qp times out, for some collectives and sizes only",
      "NCCL_CROSS_NIC=0", seen);
}

void silent_neighbours(const Host& host, Judgement& judgement) {
  if (!host.neighbours) return;
  for (const PortView& view : qos_ports(host)) {
    std::vector<std::string> seen;
    for (const Neighbour& one : *host.neighbours) {
      const bool silent = one.state == "FAILED" || one.state == "INCOMPLETE";
      if (silent && one.netdev == view.netdev->name && one.address.is_routable())
        seen.push_back(
            evidence(host.neighbours, fmt::format("{} dev {} {}", to_string(one.address), one.netdev, one.state)));
    }
    if (seen.empty()) continue;
    judgement.found(Confidence::kPossible, view.netdev->name,
                    "somebody here asked for an address on this interface and nobody answers: that host is down, on "
                    "another VLAN or rail, or answers on another of its ports",
                    fmt::format("arping -I {} ADDRESS, or ping -I {} ADDRESS; compare VLAN and subnet at both ends",
                                view.netdev->name, view.netdev->name),
                    seen);
  }
}

/// Whether packets from `netdev` can go to `address`.
bool has_route(const std::vector<Route>& routes, std::string_view netdev, const Address& address) {
  return std::ranges::any_of(routes, [&](const Route& route) {
    return route.netdev == netdev && route.network.is_ipv4() == address.is_ipv4() &&
           address.same_subnet(route.network, route.length);
  });
}

/// The interface that has an address as a GID.
const Netdev* owner_of(const Host& host, const Address& address) {
  for (const PortView& view : all_ports(host)) {
    for (const Gid& gid : view.port->gids.value_or({})) {
      if (gid.address == address && gid.netdev) return host.netdev(*gid.netdev);
    }
  }
  return nullptr;
}

void no_route_to_peer(const Host& host, Judgement& judgement) {
  if (!host.nccl_log) return;
  for (const FailedConnect& failed : host.nccl_log->connects) {
    const auto local = parse_address(failed.local_gid);
    const auto remote = parse_address(failed.remote_gid);
    const Netdev* netdev = local && remote ? owner_of(host, *local) : nullptr;
    if (netdev == nullptr || !remote->is_routable()) continue;
    if (!host.routes) {
      judgement.unknown("routes of " + netdev->name, host.routes);
      return;
    }
    if (has_route(*host.routes, netdev->name, *remote)) continue;
    judgement.found(
        Confidence::kLikely, netdev->name,
        fmt::format("{} is in no subnet of {}, and no route from there leads to it: queue pairs between the two cannot "
                    "be connected",
                    to_string(*remote), netdev->name),
        fmt::format("NCCL_CROSS_NIC=0 where rails are separate; else ip route add SUBNET via GATEWAY dev {}",
                    netdev->name),
        {fmt::format("{}:{}: {}", host.nccl_log->path, failed.line.number, failed.line.text),
         evidence(host.routes, fmt::format("none on {} for {}", netdev->name, to_string(*remote)))});
    return;
  }
}

void rails_out_of_order(const Host& host, Judgement& judgement) {
  const std::vector<Rail> rails = rails_by_gpu(host);
  const auto order = order_of(rails);
  if (std::ranges::is_sorted(order)) return;
  std::vector<std::string> seen;
  for (const Rail& rail : rails) {
    seen.push_back(fmt::format("GPU {}: nearest NIC {}, in {}/{}", rail.gpu, rail.device,
                               to_string(rail.subnet.network), rail.subnet.length));
  }
  judgement.found(
      Confidence::kPossible, "rails",
      fmt::format(
          "the subnets of the GPUs' NICs are not in the order of the GPUs ({}): where another host has them in "
          "order, GPUs of the same number sit on different rails, and what they send each other crosses the fabric",
          fmt::join(order, " ")),
      "give the NICs their addresses in the order of the GPUs, on all hosts alike (ip address), or see with "
      "`tensorwire "
      "doctor compare` that all hosts have this order",
      seen);
}

// clang-format off
constexpr std::array kNetRules = {
    Rule{"TW-NET-001", Severity::kWarning, "several RDMA interfaces in one subnet",
         "Linux owns addresses as a host, not by interface. Two ports in one subnet answer for each other (\"ARP flux\"), and "
         "the switch learns both addresses on one port.",
         several_in_one_subnet},
    Rule{"TW-NET-002", Severity::kWarning, "a bond with one queue pair a connection",
         "LAG chooses the member by a hash of the flow, and a queue pair is one flow.",
         bond_with_one_queue_pair},
    Rule{"TW-NET-003", Severity::kError, "the socket interface leads nowhere",
         "NCCL and Gloo meet over TCP first. NCCL takes the names as prefixes, Gloo as they are.",
         wrong_socket_interface},
    Rule{"TW-NET-004", Severity::kWarning, "rails are crossed on a fabric of separate rails",
         "On a rail-only fabric NICs of different rails cannot reach each other. Ring all-reduces never try, gathers and "
         "all-to-alls do.",
         crossed_rails},
    Rule{"TW-NET-005", Severity::kWarning, "a neighbour does not answer",
         "Before a queue pair can be connected the kernel must know the peer's Ethernet address. FAILED and INCOMPLETE entries "
         "are addresses that nobody answered for; they go away after a while.",
         silent_neighbours},
    Rule{"TW-NET-006", Severity::kError, "no route to the peer's GID",
         "NCCL's log names both GIDs of a queue pair that could not be connected. Where the peer's is in another subnet, the "
         "interface needs a route of its own to it: the default route of another interface does not count.",
         no_route_to_peer},
    Rule{"TW-NET-007", Severity::kInfo, "rails in another order than the GPUs",
         "On rail-optimised fabrics the first GPU's NIC of each host belongs on the first rail. NCCL pairs NICs by their place "
         "and not by their subnet, so an order that differs between hosts costs bandwidth, or joins NICs that cannot reach "
         "each other. One host alone shows the order; `tensorwire doctor compare` shows whether hosts agree.",
         rails_out_of_order},
};
// clang-format on

}  // namespace

RuleGroup net_rules() { return {"Interfaces and subnets", kNetRules}; }

}  // namespace tensorwire::host
