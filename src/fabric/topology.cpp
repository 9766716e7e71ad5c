#include "fabric/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"

namespace tensorwire::fabric {

Topology single_switch(std::uint32_t hosts, const LinkConfig& link) {
  Topology topology;
  topology.add_hosts(hosts);
  const SwitchId only = topology.add_switch("switch");
  for (HostId host = 0; host < hosts; ++host) topology.link_host(host, only, link);
  return topology;
}

Topology dumbbell(std::uint32_t left, std::uint32_t right, const LinkConfig& host_link, const LinkConfig& trunk) {
  Topology topology;
  topology.add_hosts(left + right);
  const SwitchId a = topology.add_switch("left");
  const SwitchId b = topology.add_switch("right");
  for (HostId host = 0; host < left + right; ++host) topology.link_host(host, host < left ? a : b, host_link);
  topology.link_switches(a, b, trunk);
  return topology;
}

Topology leaf_spine(std::uint32_t leaves, std::uint32_t spines, std::uint32_t hosts_per_leaf,
                    const LinkConfig& host_link, const LinkConfig& uplink) {
  Topology topology;
  topology.add_hosts(leaves * hosts_per_leaf);
  for (std::uint32_t leaf = 0; leaf < leaves; ++leaf) topology.add_switch(fmt::format("leaf {}", leaf));
  for (std::uint32_t spine = 0; spine < spines; ++spine) topology.add_switch(fmt::format("spine {}", spine));
  for (HostId host = 0; host < topology.hosts; ++host) topology.link_host(host, host / hosts_per_leaf, host_link);
  for (SwitchId leaf = 0; leaf < leaves; ++leaf)
    for (std::uint32_t spine = 0; spine < spines; ++spine) topology.link_switches(leaf, leaves + spine, uplink);
  return topology;
}

Topology rail_optimised(std::uint32_t nodes, std::uint32_t rails, std::uint32_t nodes_per_leaf, std::uint32_t spines,
                        const LinkConfig& host_link, const LinkConfig& uplink) {
  Topology topology;
  topology.add_hosts(nodes * rails);
  const std::uint32_t blocks = (nodes + nodes_per_leaf - 1) / nodes_per_leaf;
  for (std::uint32_t block = 0; block < blocks; ++block)
    for (std::uint32_t rail = 0; rail < rails; ++rail) topology.add_switch(fmt::format("rail {} leaf {}", rail, block));
  for (std::uint32_t spine = 0; spine < spines; ++spine) topology.add_switch(fmt::format("spine {}", spine));
  for (HostId host = 0; host < topology.hosts; ++host) {
    const std::uint32_t block = host / rails / nodes_per_leaf;
    topology.link_host(host, block * rails + host % rails, host_link);
  }
  for (SwitchId leaf = 0; leaf < blocks * rails; ++leaf)
    for (std::uint32_t spine = 0; spine < spines; ++spine) topology.link_switches(leaf, blocks * rails + spine, uplink);
  return topology;
}

Topology fat_tree(std::uint32_t k, const LinkConfig& link) {
  const std::uint32_t half = k / 2;
  Topology topology;
  topology.add_hosts(k * half * half);
  for (std::uint32_t pod = 0; pod < k; ++pod)
    for (std::uint32_t n = 0; n < half; ++n) topology.add_switch(fmt::format("pod {} leaf {}", pod, n));
  for (std::uint32_t pod = 0; pod < k; ++pod)
    for (std::uint32_t n = 0; n < half; ++n) topology.add_switch(fmt::format("pod {} spine {}", pod, n));
  for (std::uint32_t n = 0; n < half * half; ++n) topology.add_switch(fmt::format("core {}", n));
  const std::uint32_t spines = k * half;  // the first one's number; the leaves come before
  for (HostId host = 0; host < topology.hosts; ++host) topology.link_host(host, host / half, link);
  for (std::uint32_t pod = 0; pod < k; ++pod) {
    for (std::uint32_t leaf = 0; leaf < half; ++leaf)
      for (std::uint32_t spine = 0; spine < half; ++spine)
        topology.link_switches(pod * half + leaf, spines + pod * half + spine, link);
    for (std::uint32_t spine = 0; spine < half; ++spine)
      for (std::uint32_t core = 0; core < half; ++core)
        topology.link_switches(spines + pod * half + spine, 2 * spines + spine * half + core, link);
  }
  return topology;
}

namespace {

constexpr std::uint32_t kUnreached = ~std::uint32_t{0};

/// Which switches stand beside each other: by port of a switch, the switch at its other end (or kUnreached: a host, or
/// a link that is down).
std::vector<SwitchId> neighbours(const Topology& topology, const Routes& routes, const std::vector<bool>& down) {
  std::vector<SwitchId> owner(routes.peer_of.size(), kUnreached);
  for (SwitchId at = 0; at < topology.switches.size(); ++at)
    std::fill(owner.begin() + routes.first_port[at], owner.begin() + routes.first_port[at + 1], at);
  std::vector<SwitchId> beside(routes.peer_of.size(), kUnreached);
  for (PortId port = topology.hosts; port < beside.size(); ++port)
    if (down.empty() || !down[routes.link_of[port]]) beside[port] = owner[routes.peer_of[port]];
  return beside;
}

/// Hops from every switch to `leaf`.
std::vector<std::uint32_t> distances(const Routes& routes, const std::vector<SwitchId>& beside, SwitchId leaf) {
  const std::size_t switches = routes.first_port.size() - 1;
  std::vector<std::uint32_t> hops(switches, kUnreached);
  std::vector<SwitchId> queue{leaf};
  hops[leaf] = 0;
  for (std::size_t head = 0; head < queue.size(); ++head) {
    const SwitchId at = queue[head];
    for (PortId port = routes.first_port[at]; port < routes.first_port[at + 1]; ++port) {
      const SwitchId next = beside[port];
      if (next == kUnreached || hops[next] != kUnreached) continue;
      hops[next] = hops[at] + 1;
      queue.push_back(next);
    }
  }
  return hops;
}

/// The switches that have hosts.
std::set<SwitchId> leaves_of(const Routes& routes) { return {routes.leaf_of.begin(), routes.leaf_of.end()}; }

void number_ports(const Topology& topology, Routes& routes) {
  std::vector<std::uint32_t> counts(topology.switches.size());
  std::vector<bool> linked(topology.hosts);
  for (const Link& link : topology.links) {
    for (const NodeRef& end : {link.a, link.b}) {
      if (!end.host) {
        ++counts[end.index];
      } else if (linked[end.index]) {
        throw Error{"build the fabric", fmt::format("host {} has more than one link", end.index), "Give it one"};
      } else {
        linked[end.index] = true;
      }
    }
  }
  for (HostId host = 0; host < topology.hosts; ++host)
    if (!linked[host]) throw Error{"build the fabric", fmt::format("host {} has no link", host), "Give it one"};
  PortId next = topology.hosts;
  for (const std::uint32_t count : counts) {
    routes.first_port.push_back(next);
    next += count;
  }
  routes.first_port.push_back(next);
  routes.peer_of.resize(next);
  routes.link_of.resize(next);
}

void join_ports(const Topology& topology, Routes& routes) {
  std::vector<PortId> next(routes.first_port.begin(), routes.first_port.end());
  routes.leaf_of.resize(topology.hosts);
  routes.port_to.resize(topology.hosts);
  for (std::uint32_t index = 0; index < topology.links.size(); ++index) {
    const Link& link = topology.links[index];
    const auto take = [&](const NodeRef& end) { return end.host ? end.index : next[end.index]++; };
    const PortId a = take(link.a);
    const PortId b = take(link.b);
    if (link.b.host)
      throw Error{"build the fabric", "a link ends at a host that should be named first", "Swap its ends"};
    routes.peer_of[a] = b;
    routes.peer_of[b] = a;
    routes.link_of[a] = routes.link_of[b] = index;
    if (!link.a.host) continue;
    routes.leaf_of[link.a.index] = link.b.index;
    routes.port_to[link.a.index] = b;
  }
}

void number_leaves(const Topology& topology, const std::set<SwitchId>& leaves, Routes& routes) {
  constexpr std::size_t kMost = 65'535;
  if (leaves.size() > kMost) {
    throw Error{"build the fabric", fmt::format("it has {} switches with hosts, {} are possible", leaves.size(), kMost),
                "Put more hosts on each"};
  }
  routes.leaves = leaves.size();
  routes.leaf_number.assign(topology.switches.size(), 0);
  std::uint16_t number = 0;
  for (const SwitchId leaf : leaves) routes.leaf_number[leaf] = number++;
}

/// Those of the ports of `at` that lead one hop nearer.
std::vector<PortId> ports_towards(const Routes& routes, const std::vector<SwitchId>& beside,
                                  const std::vector<std::uint32_t>& hops, SwitchId at) {
  std::vector<PortId> ports;
  if (hops[at] == kUnreached) return ports;
  for (PortId port = routes.first_port[at]; port < routes.first_port[at + 1]; ++port)
    if (beside[port] != kUnreached && hops[beside[port]] + 1 == hops[at]) ports.push_back(port);
  return ports;
}

/// The choice of the last switch that has these ports, a new one if there was none; counted from its first.
std::uint16_t choice_with(Routes& routes, const std::vector<PortId>& ports) {
  const std::size_t first = routes.first_choice.back();
  for (std::size_t n = first; n < routes.choices.size(); ++n) {
    const Routes::Choices& choices = routes.choices[n];
    const auto begin = routes.ports.begin() + choices.first;
    if (std::equal(begin, begin + choices.count, ports.begin(), ports.end()))
      return static_cast<std::uint16_t>(n - first);
  }
  routes.choices.push_back({static_cast<std::uint32_t>(routes.ports.size()), static_cast<std::uint32_t>(ports.size())});
  routes.ports.insert(routes.ports.end(), ports.begin(), ports.end());
  return static_cast<std::uint16_t>(routes.choices.size() - 1 - first);
}

}  // namespace

void find_ways_around(const Topology& topology, const std::vector<bool>& down, Routes& routes) {
  const auto switches = static_cast<SwitchId>(topology.switches.size());
  const std::vector<SwitchId> beside = neighbours(topology, routes, down);
  const std::set<SwitchId> leaves = leaves_of(routes);
  number_leaves(topology, leaves, routes);
  std::vector<std::vector<std::uint32_t>> hops;  // by leaf's number
  for (const SwitchId leaf : leaves) hops.push_back(distances(routes, beside, leaf));
  routes.choice_of.assign(std::size_t{switches} * leaves.size(), 0);
  routes.choices.clear();
  routes.first_choice.clear();
  routes.ports.clear();
  for (SwitchId at = 0; at < switches; ++at) {
    routes.first_choice.push_back(static_cast<std::uint32_t>(routes.choices.size()));
    routes.choices.emplace_back();  // none, for those that cannot be reached and for itself
    for (std::size_t leaf = 0; leaf < hops.size(); ++leaf) {
      const std::vector<PortId> ports = ports_towards(routes, beside, hops[leaf], at);
      routes.choice_of[at * leaves.size() + leaf] = choice_with(routes, ports);
    }
  }
  routes.first_choice.push_back(static_cast<std::uint32_t>(routes.choices.size()));
}

Routes find_routes(const Topology& topology) {
  Routes routes;
  number_ports(topology, routes);
  join_ports(topology, routes);
  find_ways_around(topology, {}, routes);
  for (const SwitchId at : leaves_of(routes)) {
    for (const SwitchId leaf : leaves_of(routes)) {
      if (at == leaf || routes.towards(at, leaf).count != 0) continue;
      throw Error{"build the fabric",
                  fmt::format("no way leads from {} to {}", topology.switches[at], topology.switches[leaf]),
                  "Link them"};
    }
  }
  return routes;
}

}  // namespace tensorwire::fabric
