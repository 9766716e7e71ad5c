#include "fabric/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace tensorwire::fabric {

namespace {

constexpr std::uint32_t kRails = 8;

void refuse_impossible(const Cluster& cluster) {
  const auto refuse = [](const std::string& why, const std::string& remedy) {
    throw Error{"plan a cluster", why, remedy};
  };
  if (cluster.tensor_parallel < 2 || cluster.gpus % cluster.tensor_parallel != 0) {
    refuse(fmt::format("{} GPUs are not made of groups of {}", cluster.gpus, cluster.tensor_parallel),
           "Take a multiple of the group's size, 2 or more");
  }
  if (cluster.shape == ClusterShape::kSingleSwitch && cluster.gpus > 256)
    refuse("no switch has more than 256 ports", "Take leaf-spine, rail-optimised or fat-tree");
  if (cluster.shape == ClusterShape::kRailOptimised && cluster.gpus % kRails != 0)
    refuse("rails are for nodes of eight GPUs", "Take a multiple of 8");
}

Topology topology_of(const Cluster& cluster) {
  LinkConfig link;
  link.ps_per_byte = cluster.ps_per_byte;
  link.delay = cluster.hop;
  const auto spines = [&](std::uint32_t hosts) { return std::max(1U, hosts / cluster.oversubscription); };
  switch (cluster.shape) {
    case ClusterShape::kSingleSwitch:
      return single_switch(cluster.gpus, link);
    case ClusterShape::kLeafSpine: {
      const std::uint32_t hosts = std::min(cluster.gpus, cluster.hosts_per_leaf);
      return leaf_spine((cluster.gpus + hosts - 1) / hosts, spines(hosts), hosts, link, link);
    }
    case ClusterShape::kRailOptimised: {
      const std::uint32_t nodes = cluster.gpus / kRails;
      const std::uint32_t on_leaf = std::min(nodes, cluster.hosts_per_leaf);
      return rail_optimised(nodes, kRails, on_leaf, spines(on_leaf), link, link);
    }
    case ClusterShape::kFatTree: {
      std::uint32_t ports = 2;
      while (ports * ports * ports / 4 < cluster.gpus) ports += 2;
      return fat_tree(ports, link);
    }
  }
  return {};
}

}  // namespace

std::string_view name_of(ClusterShape shape) noexcept {
  constexpr std::array<std::string_view, kClusterShapes.size()> kNames{"single-switch", "leaf-spine", "rail-optimised",
                                                                       "fat-tree"};
  return kNames[static_cast<std::size_t>(shape)];
}

Scenario scenario_of(const Cluster& cluster) {
  refuse_impossible(cluster);
  Scenario scenario;
  scenario.name =
      fmt::format("{} GPUs in groups of {}, {}", cluster.gpus, cluster.tensor_parallel, name_of(cluster.shape));
  scenario.topology = topology_of(cluster);
  scenario.mtu = cluster.mtu;
  scenario.limit = 10 * kSecond;
  FabricConfig& fabric = scenario.fabric;
  const auto line_rate = static_cast<std::uint64_t>(8 * kSecond / cluster.ps_per_byte);
  fabric.engine.dcqcn = transport::dcqcn_nic(line_rate);
  fabric.engine.qp_window_bytes = 2U << 20;
  fabric.engine.ack_coalesce = fabric.engine.ack_request_every = 4;
  fabric.switches.buffer.bytes = cluster.buffer_bytes;
  fabric.switches.ecn = {true, 128 * 1024, 256 * 1024, 50'000};
  fabric.hosts.post_delay = fabric.hosts.completion_delay = cluster.pcie;
  fabric.hosts.completion_delay += cluster.host_loop;
  fabric.hosts.post_cost = cluster.post_cost;

  const std::uint32_t groups = cluster.gpus / cluster.tensor_parallel;
  AllReduceTraffic traffic;
  traffic.bytes = cluster.bytes;
  traffic.algorithm = cluster.algorithm;
  traffic.operations = cluster.operations;
  traffic.warm_up = 1;
  traffic.per_token = cluster.per_token;
  traffic.compute = cluster.compute;
  for (std::uint32_t group = 0; group < groups; ++group) {
    traffic.hosts.clear();
    for (std::uint32_t rank = 0; rank < cluster.tensor_parallel; ++rank)
      traffic.hosts.push_back(cluster.spread ? rank * groups + group : group * cluster.tensor_parallel + rank);
    // Replicas know nothing of each other: their tokens begin at any time.
    traffic.start = cluster.compute / cluster.per_token * group / groups;
    scenario.allreduces.push_back(traffic);
  }
  return scenario;
}

}  // namespace tensorwire::fabric
