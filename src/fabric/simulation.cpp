#include "fabric/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace tensorwire::fabric {

namespace {

double us(Ps time) noexcept { return static_cast<double>(time) / kMicrosecond; }
double ms(Ps time) noexcept { return static_cast<double>(time) / kMillisecond; }

/// Of sorted values: the smallest that `part` of them do not exceed.
double quantile(const std::vector<Ps>& sorted, double part) noexcept {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<std::size_t>(part * static_cast<double>(sorted.size()) + 0.999999);
  return us(sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1]);
}

double mean(const std::vector<Ps>& values) noexcept {
  double sum = 0;
  for (const Ps value : values) sum += us(value);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

}  // namespace

Simulation::Sampler::Sampler(Fabric& fabric, Ps every) : fabric_(fabric), every_(every) { fabric.call_at(0, *this); }

void Simulation::Sampler::act(Ps now) {
  Sample sample;
  sample.time = now;
  for (const Port& port : fabric_.ports()) {
    if (!port.of_host) sample.deepest_queue = std::max<std::uint64_t>(sample.deepest_queue, port.queued_bytes);
    if (port.paused != 0) ++sample.paused_ports;
  }
  sample.payload_bytes = fabric_.counters().payload_bytes;
  sample.marked = fabric_.counters().marked;
  samples.push_back(sample);
  fabric_.call_at(now + every_, *this);
}

Simulation::Simulation(const Scenario& scenario) : scenario_(scenario), fabric_(scenario.topology, scenario.fabric) {
  for (const SlowReceiver& slow : scenario.slow_receivers) {
    HostConfig config = scenario.fabric.hosts;
    config.receive_ps_per_byte = slow.receive_ps_per_byte;
    config.receive_buffer_bytes = slow.buffer_bytes;
    config.receive_xoff_bytes = slow.xoff_bytes;
    config.receive_xon_bytes = slow.xon_bytes;
    fabric_.set_host(slow.host, config);
  }
  for (const AllReduceTraffic& traffic : scenario.allreduces) add_allreduce(traffic);
  for (const BulkTraffic& traffic : scenario.bulk) add_bulk(traffic);
  for (const LinkFailureConfig& failure : scenario.link_failures)
    failures_.push_back(std::make_unique<LinkFailure>(fabric_, failure));
  sampler_ = std::make_unique<Sampler>(fabric_, scenario.sample_every);
}

ConnectionConfig Simulation::connection(std::uint8_t dscp) const {
  ConnectionConfig connection;
  connection.traffic_class = static_cast<std::uint8_t>(dscp << 2);
  connection.mtu = scenario_.mtu;
  connection.timeout = scenario_.timeout;
  return connection;
}

void Simulation::add_allreduce(const AllReduceTraffic& traffic) {
  GroupConfig group;
  group.hosts = traffic.hosts;
  group.bytes = traffic.bytes;
  group.algorithm = traffic.algorithm;
  group.operations = traffic.warm_up + traffic.operations;
  group.warm_up = traffic.warm_up;
  group.start = traffic.start;
  group.compute = traffic.compute / traffic.per_token;
  group.connection = connection(traffic.dscp);
  group.on_finished = [this] { stop_if_ended(); };
  groups_.push_back(std::make_unique<CollectiveGroup>(fabric_, group));
}

void Simulation::add_bulk(const BulkTraffic& traffic) {
  FlowConfig flow;
  flow.message_bytes = traffic.message_bytes;
  flow.messages = traffic.messages;
  flow.start = traffic.start;
  flow.connection = connection(traffic.dscp);
  flow.on_finished = [this] { stop_if_ended(); };
  const auto add = [&](HostId from, HostId to) {
    flow.from = from;
    flow.to = to;
    for (std::uint32_t n = 0; from != to && n < traffic.queue_pairs; ++n)
      flows_.push_back(std::make_unique<Flow>(fabric_, flow));
  };
  if (traffic.pairs) {
    for (std::size_t n = 0; n < traffic.from.size(); ++n) add(traffic.from[n], traffic.to[n]);
  } else {
    for (HostId to = 0; to < scenario_.topology.hosts; ++to) {
      if (std::ranges::find(traffic.to, to) == traffic.to.end()) continue;
      for (const HostId from : traffic.from) add(from, to);
    }
  }
}

bool Simulation::ended() const {
  const bool groups = std::ranges::all_of(groups_, [](const auto& group) { return group->finished(); });
  // Endless traffic ends with the groups; without any, at the limit.
  const bool flows = std::ranges::all_of(
      flows_, [](const auto& flow) { return flow->finished() || flow->failed() || flow->config().messages == 0; });
  const bool anything =
      !groups_.empty() || std::ranges::any_of(flows_, [](const auto& flow) { return flow->config().messages != 0; });
  return anything && groups && flows;
}

void Simulation::stop_if_ended() {
  if (ended()) fabric_.stop();
}

bool Simulation::run(Ps span) {
  if (over_) return false;
  const Ps until = std::min(scenario_.limit, fabric_.now() + span);
  fabric_.run(until);
  const bool failed = std::ranges::any_of(groups_, [](const auto& group) { return !group->failure().empty(); });
  over_ = failed || ended() || until == scenario_.limit;
  return !over_;
}

Simulation::Progress Simulation::progress() const {
  Progress progress;
  for (const auto& group : groups_) {
    progress.all += group->config().operations - group->config().warm_up;
    progress.done += group->latencies().size();
  }
  return progress;
}

Report Simulation::report() const {
  Report report;
  report.scenario = scenario_.name;
  report.about = scenario_.about;
  report.seed = scenario_.fabric.seed;
  report.simulated_us = us(fabric_.now());
  std::vector<Ps> all;
  for (std::size_t n = 0; n < groups_.size(); ++n) {
    const AllReduceTraffic& traffic = scenario_.allreduces[n];
    std::vector<Ps> sorted = groups_[n]->latencies();
    all.insert(all.end(), sorted.begin(), sorted.end());
    std::ranges::sort(sorted);
    GroupReport group;
    group.hosts = traffic.hosts;
    group.operations = sorted.size();
    for (const Ps latency : sorted) group.latencies_us.push_back(us(latency));
    group.p50_us = quantile(sorted, 0.5);
    group.p99_us = quantile(sorted, 0.99);
    group.max_us = quantile(sorted, 1);
    group.mean_us = mean(sorted);
    group.comm_ms_per_token = group.mean_us * traffic.per_token / 1000;
    group.ms_per_token = ms(traffic.compute) + group.comm_ms_per_token;
    report.comm_ms_per_token = std::max(report.comm_ms_per_token, group.comm_ms_per_token);
    report.ms_per_token = std::max(report.ms_per_token, group.ms_per_token);
    if (report.failure.empty()) report.failure = groups_[n]->failure();
    report.groups.push_back(group);
  }
  std::ranges::sort(all);
  report.p50_us = quantile(all, 0.5);
  report.p99_us = quantile(all, 0.99);
  report.max_us = quantile(all, 1);
  add_traffic(report);
  add_ports(report);
  add_links(report);
  report.uneven = most_uneven_ways();
  report.samples = sampler_->samples;
  report.finding = finding_of(report, scenario_.fabric.switches.ecn.min_bytes, scenario_.fabric.switches.ecn.enabled);
  return report;
}

void Simulation::add_traffic(Report& report) const {
  const double seconds = std::max(static_cast<double>(fabric_.now()) / kSecond, 1e-12);
  const FabricCounters& counters = fabric_.counters();
  report.goodput_gbps = static_cast<double>(counters.payload_bytes) * 8 / seconds / 1e9;
  std::size_t ended = 0;
  std::map<std::pair<HostId, HostId>, double> pairs;
  for (const auto& flow : flows_) {
    const Ps until = flow->finished() ? flow->finished_at() : fabric_.now();
    const double ns = std::max(static_cast<double>(until - flow->config().start) / kNanosecond, 1.0);
    pairs[{flow->config().from, flow->config().to}] += static_cast<double>(flow->completed_bytes()) * 8 / ns;
    report.bulk_gbps += static_cast<double>(flow->completed_bytes()) * 8 / seconds / 1e9;
    if (!flow->finished()) continue;
    ++ended;
    const double took = ms(flow->finished_at() - flow->config().start);
    report.bulk_mean_ms += took;
    report.bulk_max_ms = std::max(report.bulk_max_ms, took);
  }
  for (const auto& [pair, gbps] : pairs)
    if (report.bulk_slowest_pair_gbps == 0 || gbps < report.bulk_slowest_pair_gbps)
      report.bulk_slowest_pair_gbps = gbps;
  if (ended != 0) report.bulk_mean_ms /= static_cast<double>(ended);
  for (HostId host = 0; host < fabric_.host_count(); ++host) {
    const transport::EngineCounters& engine = fabric_.host(host).engine.counters();
    report.retransmitted += engine.retransmitted_packets;
    report.timeouts += engine.local_ack_timeout_err;
    report.cnps += engine.np_cnp_sent;
  }
  report.marked = counters.marked;
  report.dropped = counters.dropped;
  report.lost = counters.lost;
  report.pauses_sent = counters.pauses_sent;
  report.unroutable = counters.unroutable;
  report.watchdog = counters.watchdog;
  report.watchdog_dropped = counters.watchdog_dropped;
  for (const PortId port : fabric_.deadlock()) report.deadlock.push_back(fabric_.name_of(port));
  report.data_packet_hops = counters.data_packet_hops;
  report.packet_hops = counters.packet_hops;
  report.events = fabric_.events();
  report.hash = fabric_.hash();
}

double Simulation::utilisation(PortId id) const {
  const Port& port = fabric_.ports()[id];
  const auto now = std::max<double>(static_cast<double>(fabric_.now()), 1);
  return static_cast<double>(port.counters.bytes) * static_cast<double>(port.ps_per_byte) / now;
}

std::pair<std::uint8_t, double> Simulation::longest_paused(PortId port) const {
  std::uint8_t longest = 0;
  for (std::uint8_t priority = 1; priority < kPriorities; ++priority)
    if (fabric_.paused_time(port, priority) > fabric_.paused_time(port, longest)) longest = priority;
  const auto now = std::max(static_cast<double>(fabric_.now()), 1.0);
  return {longest, static_cast<double>(fabric_.paused_time(port, longest)) / now};
}

void Simulation::add_links(Report& report) const {
  const Topology& topology = fabric_.topology();
  const auto name = [&](const NodeRef& node) {
    return node.host ? fmt::format("host {}", node.index) : topology.switches[node.index];
  };
  for (const Link& link : topology.links) report.links.push_back({name(link.a), name(link.b), {}, {}});
  for (PortId id = 0; id < fabric_.ports().size(); ++id) {
    const std::uint32_t number = fabric_.routes().link_of[id];
    const Port& port = fabric_.ports()[id];
    const bool is_a = topology.links[number].a == NodeRef{port.of_host, port.node};
    LinkReport::Direction& direction = is_a ? report.links[number].from_a : report.links[number].from_b;
    direction.utilisation = utilisation(id);
    direction.paused = longest_paused(id).second;
  }
}

UnevenWays Simulation::most_uneven_ways() const {
  UnevenWays worst;
  const Routes& routes = fabric_.routes();
  SwitchId at = 0;
  for (std::uint32_t n = 0; n < routes.choices.size(); ++n) {
    const Routes::Choices& choices = routes.choices[n];
    while (n >= routes.first_choice[at + 1]) ++at;
    double least = 1, most = 0;
    for (std::uint32_t way = choices.first; way < choices.first + choices.count; ++way) {
      least = std::min(least, utilisation(routes.ports[way]));
      most = std::max(most, utilisation(routes.ports[way]));
    }
    if (most - least <= worst.most - worst.least) continue;
    worst = {fabric_.topology().switches[at], choices.count, least, most};
  }
  return worst;
}

void Simulation::add_ports(Report& report) const {
  for (PortId id = 0; id < fabric_.ports().size(); ++id) {
    const Port& port = fabric_.ports()[id];
    PortReport row;
    std::tie(row.priority, row.paused_fraction) = longest_paused(id);
    report.pause_fraction_max = std::max(report.pause_fraction_max, row.paused_fraction);
    const PortCounters& counters = port.counters;
    if (row.paused_fraction == 0 && port.longest_queue == 0 && counters.lost + counters.dropped == 0) continue;
    row.name = fabric_.name_of(id);
    row.peer = fabric_.name_of(port.peer);
    row.utilisation = utilisation(id);
    row.longest_queue = port.longest_queue;
    row.marked = counters.marked;
    row.dropped = counters.dropped;
    row.lost = counters.lost;
    row.watchdog_dropped = counters.watchdog_dropped;
    row.pauses_sent = counters.pauses_sent;
    report.ports.push_back(row);
  }
  std::ranges::stable_sort(report.ports, [](const PortReport& a, const PortReport& b) {
    return a.paused_fraction != b.paused_fraction ? a.paused_fraction > b.paused_fraction
                                                  : a.longest_queue > b.longest_queue;
  });
}

}  // namespace tensorwire::fabric
