#include "cli/sim/output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.hpp"

namespace tensorwire::cli {

namespace {

using fabric::GroupReport;
using fabric::PortReport;
using fabric::Report;

constexpr std::size_t kPortsShown = 8;

std::string hosts_of(const GroupReport& group) {
  std::string text;
  for (const fabric::HostId host : group.hosts) text += fmt::format("{}{}", text.empty() ? "" : " ", host);
  constexpr std::size_t kLongest = 28;
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

std::string groups(const Report& report) {
  if (report.groups.empty()) return {};
  std::string text = fmt::format("\n{:<32} {:>10} {:>9} {:>9} {:>9} {:>14} {:>12}\n", "all-reduce of hosts", "measured",
                                 "p50 us", "p99 us", "max us", "comm ms/token", "ms/token");
  for (const GroupReport& group : report.groups) {
    text +=
        fmt::format("{:<32} {:>10} {:>9.2f} {:>9.2f} {:>9.2f} {:>14.2f} {:>12.2f}\n", hosts_of(group), group.operations,
                    group.p50_us, group.p99_us, group.max_us, group.comm_ms_per_token, group.ms_per_token);
  }
  return text;
}

std::string ports(const Report& report) {
  if (report.ports.empty()) return {};
  std::string text = fmt::format("\n{:<24} {:<24} {:>8} {:>6} {:>14} {:>9} {:>8}\n", "port", "to", "paused %", "busy %",
                                 "deepest queue", "marked", "dropped");
  for (std::size_t n = 0; n < std::min(kPortsShown, report.ports.size()); ++n) {
    const PortReport& port = report.ports[n];
    text +=
        fmt::format("{:<24} {:<24} {:>8.1f} {:>6.1f} {:>14} {:>9} {:>8}\n", port.name, port.peer,
                    100 * port.paused_fraction, 100 * port.utilisation, port.longest_queue, port.marked, port.dropped);
  }
  if (report.ports.size() > kPortsShown) text += fmt::format("... and {} more\n", report.ports.size() - kPortsShown);
  return text;
}

nlohmann::json to_json(const GroupReport& group) {
  return {
      {"hosts", group.hosts},
      {"operations", group.operations},
      {"latencies_us", group.latencies_us},
      {"allreduce_us", {{"p50", group.p50_us}, {"p99", group.p99_us}, {"max", group.max_us}, {"mean", group.mean_us}}},
      {"comm_ms_per_token", group.comm_ms_per_token},
      {"ms_per_token", group.ms_per_token}};
}

nlohmann::json to_json(const PortReport& port) {
  return {{"port", port.name},
          {"to", port.peer},
          {"priority", port.priority},
          {"pause_fraction", port.paused_fraction},
          {"utilisation", port.utilisation},
          {"longest_queue_bytes", port.longest_queue},
          {"ecn_marked", port.marked},
          {"dropped", port.dropped},
          {"lost", port.lost},
          {"pauses_sent", port.pauses_sent},
          {"watchdog_dropped", port.watchdog_dropped}};
}

nlohmann::json to_json(const fabric::LinkReport& link) {
  const auto direction = [](const fabric::LinkReport::Direction& values) {
    return nlohmann::json{{"utilisation", values.utilisation}, {"paused", values.paused}};
  };
  return {{"a", link.a}, {"b", link.b}, {"from_a", direction(link.from_a)}, {"from_b", direction(link.from_b)}};
}

}  // namespace

std::string sim_summary(const Report& report, const SimRun& run) {
  std::string text = fmt::format("{}{}{}\n", report.scenario, report.about.empty() ? "" : ": ", report.about);
  text += fmt::format("{} simulated in {:.2f} s, seed {}: {:.2f} M packet hops, {:.2f} M/s{}\n",
                      format_duration(static_cast<Ps>(report.simulated_us * kMicrosecond)), run.wall_s, report.seed,
                      static_cast<double>(report.packet_hops) / 1e6,
                      static_cast<double>(report.packet_hops) / 1e6 / std::max(run.wall_s, 1e-9),
                      run.interrupted ? "; INTERRUPTED, what follows is of the part that ran" : "");
  text += groups(report) + ports(report);
  if (report.bulk_gbps > 0) {
    text += fmt::format("\nbulk traffic {:.1f} Gb/s, the slowest pair of hosts {:.1f}", report.bulk_gbps,
                        report.bulk_slowest_pair_gbps);
    if (report.bulk_max_ms > 0)
      text += fmt::format("; transfers took {:.2f} ms, at most {:.2f} ms", report.bulk_mean_ms, report.bulk_max_ms);
    text += "\n";
  }
  if (!run.capture.empty()) text += "\n" + run.capture + "\n";
  return text + "\n" + report.finding + "\n";
}

std::string sim_json(const Report& report, const SimRun& run) {
  nlohmann::json json{{"scenario", report.scenario},
                      {"about", report.about},
                      {"seed", report.seed},
                      {"finding", report.finding},
                      {"failure", report.failure},
                      {"interrupted", run.interrupted},
                      {"simulated_us", report.simulated_us},
                      {"allreduce_us", {{"p50", report.p50_us}, {"p99", report.p99_us}, {"max", report.max_us}}},
                      {"comm_ms_per_token", report.comm_ms_per_token},
                      {"ms_per_token", report.ms_per_token},
                      {"goodput_gbps", report.goodput_gbps},
                      {"bulk_gbps", report.bulk_gbps},
                      {"bulk_slowest_pair_gbps", report.bulk_slowest_pair_gbps},
                      {"bulk_ms", {{"mean", report.bulk_mean_ms}, {"max", report.bulk_max_ms}}},
                      {"pause_fraction_max", report.pause_fraction_max},
                      {"pauses_sent", report.pauses_sent},
                      {"ecn_marked", report.marked},
                      {"cnps", report.cnps},
                      {"retransmitted", report.retransmitted},
                      {"timeouts", report.timeouts},
                      {"dropped", report.dropped},
                      {"lost", report.lost},
                      {"unroutable", report.unroutable},
                      {"watchdog", {{"times", report.watchdog}, {"dropped", report.watchdog_dropped}}},
                      {"deadlock", report.deadlock},
                      {"data_packet_hops", report.data_packet_hops},
                      {"packet_hops", report.packet_hops},
                      {"events", report.events},
                      {"hash", fmt::format("{:016x}", report.hash)},
                      {"wall_s", run.wall_s},
                      {"groups", nlohmann::json::array()},
                      {"ports", nlohmann::json::array()},
                      {"links", nlohmann::json::array()},
                      {"samples",
                       {{"time_us", nlohmann::json::array()},
                        {"payload_bytes", nlohmann::json::array()},
                        {"ecn_marked", nlohmann::json::array()},
                        {"deepest_queue_bytes", nlohmann::json::array()},
                        {"paused_ports", nlohmann::json::array()}}}};
  for (const GroupReport& group : report.groups) json["groups"].push_back(to_json(group));
  for (const PortReport& port : report.ports) json["ports"].push_back(to_json(port));
  for (const fabric::LinkReport& link : report.links) json["links"].push_back(to_json(link));
  for (const fabric::Sample& sample : report.samples) {
    json["samples"]["time_us"].push_back(static_cast<double>(sample.time) / kMicrosecond);
    json["samples"]["deepest_queue_bytes"].push_back(sample.deepest_queue);
    json["samples"]["paused_ports"].push_back(sample.paused_ports);
    json["samples"]["payload_bytes"].push_back(sample.payload_bytes);
    json["samples"]["ecn_marked"].push_back(sample.marked);
  }
  return json.dump(2) + "\n";
}

}  // namespace tensorwire::cli
