// What a simulation found: numbers for machines, a finding in words for people. Plain values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "fabric/packet.hpp"

namespace tensorwire::fabric {

struct GroupReport {
  std::vector<HostId> hosts;
  std::uint64_t operations = 0;      ///< measured
  std::vector<double> latencies_us;  ///< of each, sorted
  double p50_us = 0, p99_us = 0, max_us = 0, mean_us = 0;
  double comm_ms_per_token = 0;
  double ms_per_token = 0;
};

struct PortReport {
  std::string name;
  std::string peer;
  std::uint8_t priority = 0;   ///< the one that was paused longest
  double paused_fraction = 0;  ///< of the time, it was told to be silent
  double utilisation = 0;
  std::uint64_t longest_queue = 0;  ///< bytes
  std::uint64_t marked = 0, dropped = 0, lost = 0, pauses_sent = 0, watchdog_dropped = 0;
};

/// Both directions of a link: what its two ports did.
struct LinkReport {
  std::string a, b;  ///< "host 12", "leaf 3"
  struct Direction {
    double utilisation = 0;  ///< of the time
    double paused = 0;       ///< of the time, the priority that was paused longest
  };
  Direction from_a, from_b;
};

/// Equal ways that were not used equally.
struct UnevenWays {
  std::string from;  ///< the switch that chooses; empty: no such thing was seen
  std::uint32_t ways = 0;
  double least = 0, most = 0;  ///< how much of the time the idlest and the busiest one were sending
};

struct Sample {
  Ps time = 0;
  std::uint64_t deepest_queue = 0;  ///< bytes, of any port of a switch
  std::uint32_t paused_ports = 0;   ///< of hosts and switches
  std::uint64_t payload_bytes = 0;  ///< that have arrived at hosts until then
  std::uint64_t marked = 0;         ///< likewise
};

struct Report {
  std::string scenario, about;
  std::uint64_t seed = 0;
  double simulated_us = 0;
  std::string failure;  ///< why a rank could not go on; empty where all could
  std::vector<GroupReport> groups;
  // Over all groups: quantiles of all operations, the slowest group's tokens.
  double p50_us = 0, p99_us = 0, max_us = 0, comm_ms_per_token = 0, ms_per_token = 0;
  double goodput_gbps = 0;                   ///< of payload that arrived at hosts
  double bulk_gbps = 0;                      ///< of it, bulk traffic (whole messages)
  double bulk_slowest_pair_gbps = 0;         ///< of all pairs of hosts with bulk traffic
  double bulk_mean_ms = 0, bulk_max_ms = 0;  ///< from start to end of bulk transfers that ended
  double pause_fraction_max = 0;
  std::uint64_t marked = 0, cnps = 0, retransmitted = 0, timeouts = 0, dropped = 0, lost = 0, pauses_sent = 0;
  std::uint64_t unroutable = 0, watchdog = 0, watchdog_dropped = 0;
  UnevenWays uneven;                  ///< the worst
  std::vector<std::string> deadlock;  ///< the ports that wait for each other at the end, in turn; empty: none do
  std::uint64_t data_packet_hops = 0, packet_hops = 0, events = 0, hash = 0;
  std::vector<PortReport> ports;  ///< those that were paused, or had queues or losses; the most paused first
  std::vector<LinkReport> links;  ///< all
  std::vector<Sample> samples;
  std::string finding;  ///< a sentence or two
};

/// What the numbers say, in words.
[[nodiscard]] std::string finding_of(const Report& report, std::uint64_t ecn_min_bytes, bool ecn_enabled);

}  // namespace tensorwire::fabric
