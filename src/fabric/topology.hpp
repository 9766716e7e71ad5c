// What is connected to what, before anything moves: hosts with one NIC each, switches, links; and where switches send
// what is for whom (shortest paths, all of equal length). Plain values; builders for the usual shapes. Switches have
// names ("leaf 3"), hosts are numbered.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "fabric/packet.hpp"

namespace tensorwire::fabric {

struct NodeRef {
  bool host = false;
  std::uint32_t index = 0;

  bool operator==(const NodeRef&) const = default;
};

struct LinkConfig {
  Ps ps_per_byte = 80;  ///< 80 is 100 Gb/s; both directions
  Ps delay = 1 * kMicrosecond;
  std::uint32_t loss_per_million = 0;  ///< of packets, FCS errors
  std::uint32_t lose_every = 0;        ///< of data packets, every so manieth exactly
};

struct Link {
  NodeRef a, b;
  LinkConfig config;
};

struct Topology {
  std::uint32_t hosts = 0;
  std::vector<std::string> switches;  ///< their names
  std::vector<Link> links;

  std::uint32_t add_hosts(std::uint32_t count) {
    hosts += count;
    return hosts - count;
  }
  std::uint32_t add_switch(std::string name) {
    switches.push_back(std::move(name));
    return static_cast<std::uint32_t>(switches.size() - 1);
  }
  void link_host(HostId host, SwitchId to, const LinkConfig& config) {
    links.push_back({{true, host}, {false, to}, config});
  }
  void link_switches(SwitchId a, SwitchId b, const LinkConfig& config) {
    links.push_back({{false, a}, {false, b}, config});
  }
};

/// All hosts on one switch.
[[nodiscard]] Topology single_switch(std::uint32_t hosts, const LinkConfig& link);
/// `left` hosts, a switch, one link, a switch, `right` hosts.
[[nodiscard]] Topology dumbbell(std::uint32_t left, std::uint32_t right, const LinkConfig& host_link,
                                const LinkConfig& trunk);
/// Every leaf has a link to every spine. Host h is on leaf h / hosts_per_leaf.
[[nodiscard]] Topology leaf_spine(std::uint32_t leaves, std::uint32_t spines, std::uint32_t hosts_per_leaf,
                                  const LinkConfig& host_link, const LinkConfig& uplink);
/// A leaf-spine for nodes of several NICs: a rail is the NICs of one number, and a leaf serves one rail of
/// `nodes_per_leaf` nodes, so that NICs of one number are a switch apart. Host h is NIC h % rails of node h / rails.
[[nodiscard]] Topology rail_optimised(std::uint32_t nodes, std::uint32_t rails, std::uint32_t nodes_per_leaf,
                                      std::uint32_t spines, const LinkConfig& host_link, const LinkConfig& uplink);
/// Three tiers of switches with k ports each, k^3 / 4 hosts (Al-Fares et al., SIGCOMM 2008). k is even.
[[nodiscard]] Topology fat_tree(std::uint32_t k, const LinkConfig& link);

/// Where each switch sends what is for hosts of another switch. Ports are numbered through the whole fabric: those of
/// hosts first (port h is host h's), then each switch's, in the order of the links.
struct Routes {
  std::vector<PortId> first_port;      ///< by switch, and one more
  std::vector<std::uint32_t> link_of;  ///< by port
  std::vector<PortId> peer_of;         ///< by port
  std::vector<SwitchId> leaf_of;       ///< by host
  std::vector<PortId> port_to;         ///< by host: the leaf's port towards it
  struct Choices {
    std::uint32_t first = 0, count = 0;  ///< of `ports`
  };
  // A switch has few different choices, and many leaves that each of them leads to.
  std::vector<Choices> choices;             ///< of each switch, one after another
  std::vector<std::uint32_t> first_choice;  ///< by switch, and one more: of `choices`
  std::vector<std::uint16_t> choice_of;     ///< [switch * leaves + the leaf's number]: counted from the switch's first
  std::vector<std::uint16_t> leaf_number;   ///< by switch; what has no hosts has none
  std::size_t leaves = 0;
  std::vector<PortId> ports;

  [[nodiscard]] const Choices& towards(SwitchId from, SwitchId leaf) const noexcept {
    return choices[first_choice[from] + choice_of[from * leaves + leaf_number[leaf]]];
  }
};
/// @throws Error when a host has no switch or several, or two hosts cannot reach each other.
[[nodiscard]] Routes find_routes(const Topology& topology);
/// The same where links are down (by their number); who cannot be reached then has no choices.
void find_ways_around(const Topology& topology, const std::vector<bool>& down, Routes& routes);

}  // namespace tensorwire::fabric
