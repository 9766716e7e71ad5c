// How fast the simulated fabric is: a random permutation on a three-tier fat tree, each host sending to one other, the
// real engine at both ends, an acknowledgement for every packet, PFC, ECN and DCQCN on. Seconds are of CPU. Or a
// cluster at decode: groups of 8 that span all pods, 160 all-reduces of 256 KiB a token; seconds are also of the clock.
//
//   fabric_speed [K [BYTES]]      K: ports of a switch (8: 128 hosts, 16: 1,024); bytes that each host sends
//   fabric_speed cluster [K [MS]] milliseconds of simulated time
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "fabric/cluster.hpp"
#include "fabric/flow.hpp"
#include "fabric/simulation.hpp"

namespace tensorwire::fabric {
namespace {

std::vector<HostId> permutation(std::uint32_t hosts, std::uint64_t seed) {
  std::vector<HostId> to(hosts);
  std::iota(to.begin(), to.end(), 0U);
  Random random(seed);
  for (HostId host = hosts - 1; host > 0; --host) std::swap(to[host], to[random.below(host)]);  // nobody stays
  return to;
}

void run(std::uint32_t k, std::uint32_t bytes, bool congestion_control) {
  FabricConfig config;
  config.engine.qp_window_bytes = 1U << 30;
  config.engine.ack_coalesce = config.engine.ack_request_every = 1;
  if (congestion_control) {
    config.engine.dcqcn = transport::dcqcn_nic(100'000'000'000);
    config.switches.ecn = {true, 400'000, 1'600'000, 200'000};
  }
  Fabric fabric(fat_tree(k, {}), config);
  std::vector<std::unique_ptr<Flow>> flows;
  const std::vector<HostId> to = permutation(fabric.host_count(), 1);
  for (HostId host = 0; host < fabric.host_count(); ++host) {
    FlowConfig flow;
    flow.from = host;
    flow.to = to[host];
    flow.message_bytes = bytes;
    flows.push_back(std::make_unique<Flow>(fabric, flow));
  }
  const std::clock_t started = std::clock();
  fabric.run(10 * kSecond);
  const double seconds = static_cast<double>(std::clock() - started) / CLOCKS_PER_SEC;
  const FabricCounters& counters = fabric.counters();
  Ps first = kNever, last = 0;
  for (const auto& flow : flows) {
    if (!flow->finished()) std::abort();
    first = std::min(first, flow->finished_at());
    last = std::max(last, flow->finished_at());
  }
  fmt::print(
      "{} hosts x {} B, {}: {:.2f} M data-packet hops/s, {:.2f} M hops/s, {:.2f} M events/s, {:.2f} GB payload/s; "
      "{} data hops, {:.3f} s of CPU; flows {:.1f} to {:.1f} us; {} marked, {} pauses, {} dropped\n",
      fabric.host_count(), bytes, congestion_control ? "DCQCN" : "no congestion control",
      static_cast<double>(counters.data_packet_hops) / seconds / 1e6,
      static_cast<double>(counters.packet_hops) / seconds / 1e6, static_cast<double>(fabric.events()) / seconds / 1e6,
      static_cast<double>(counters.payload_bytes) / seconds / 1e9, counters.data_packet_hops, seconds,
      static_cast<double>(first) / kMicrosecond, static_cast<double>(last) / kMicrosecond, counters.marked,
      counters.pauses_sent, counters.dropped);
}

void run_cluster(std::uint32_t k, Ps span) {
  Cluster cluster;
  cluster.gpus = k * k * k / 4;
  cluster.shape = ClusterShape::kFatTree;
  cluster.operations = cluster.per_token;
  const Ps began = monotonic_now();
  const std::clock_t started = std::clock();
  Simulation simulation(scenario_of(cluster));
  simulation.run(span);
  const double seconds = static_cast<double>(std::clock() - started) / CLOCKS_PER_SEC;
  const double wall = static_cast<double>(monotonic_now() - began) / kSecond;
  const FabricCounters& counters = simulation.fabric().counters();
  std::uint64_t operations = 0;
  const Report report = simulation.report();
  for (const GroupReport& group : report.groups) operations += group.operations;
  fmt::print(
      "{} hosts in {} groups, {:.1f} ms: {} all-reduces, {:.1f} M data-packet hops, {:.1f} M hops, {:.2f} M "
      "data-packet "
      "hops/s; {:.1f} s of CPU, {:.1f} s by the clock; {:.2f} ms/token, hash {:016x}\n",
      cluster.gpus, report.groups.size(), static_cast<double>(simulation.now()) / kMillisecond, operations,
      static_cast<double>(counters.data_packet_hops) / 1e6, static_cast<double>(counters.packet_hops) / 1e6,
      static_cast<double>(counters.data_packet_hops) / seconds / 1e6, seconds, wall, report.ms_per_token, report.hash);
}

}  // namespace
}  // namespace tensorwire::fabric

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view{argv[1]} == "cluster") {
    const auto ports = static_cast<std::uint32_t>(argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 16);
    const tensorwire::Ps ms = argc > 3 ? std::strtol(argv[3], nullptr, 10) : 10;
    tensorwire::fabric::run_cluster(ports, ms * tensorwire::kMillisecond);
    return 0;
  }
  const auto k = static_cast<std::uint32_t>(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 8);
  const auto bytes = static_cast<std::uint32_t>(argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 2'000'000);
  tensorwire::fabric::run(k, bytes, false);
  tensorwire::fabric::run(k, bytes, true);
}
