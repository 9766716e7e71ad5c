// The finding: what a network engineer would say after a look at the numbers.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.hpp"
#include "fabric/report.hpp"

namespace tensorwire::fabric {

namespace {

/// Pauses shorter than this part of the time harm nobody.
constexpr double kNotable = 0.01;

const PortReport* deepest(const Report& report) {
  const PortReport* found = nullptr;
  for (const PortReport& port : report.ports)
    if (!port.name.starts_with("host") && (found == nullptr || port.longest_queue > found->longest_queue))
      found = &port;
  return found;
}

std::string about_pauses(const Report& report) {
  const PortReport& worst = report.ports.front();
  const auto notable =
      std::ranges::count_if(report.ports, [](const PortReport& port) { return port.paused_fraction > kNotable; });
  return fmt::format("{} paused {} for {:.0f} % of the time (priority {}); {} ports were paused for more than 1 %. ",
                     worst.peer, worst.name, 100 * worst.paused_fraction, worst.priority, notable);
}

std::string about_deadlock(const Report& report) {
  std::string text = "DEADLOCK: each of these ports is paused until the next one sends, and none can: ";
  for (const std::string& port : report.deadlock) text += port + ", ";
  return text + report.deadlock.front() + ". ";
}

std::string about_watchdog(const Report& report) {
  return fmt::format("The PFC watchdog gave up waiting {} times and threw away {} packets. ", report.watchdog,
                     report.watchdog_dropped);
}

/// Flows that share a way while another one is idle. A single flow leaves ways idle, too, and harms nobody.
bool collide(const UnevenWays& uneven) { return uneven.most > 0.7 && uneven.least < 0.25; }

std::string about_ways(const UnevenWays& uneven) {
  return fmt::format(
      "Of {} equal ways that {} has, one was busy {:.0f} % of the time and one {:.0f} %: ECMP spreads few "
      "large flows unevenly, more queue pairs a pair of hosts are more flows. ",
      uneven.ways, uneven.from, 100 * uneven.most, 100 * uneven.least);
}

std::string about_marks(const Report& report, std::uint64_t ecn_min_bytes, bool ecn_enabled) {
  if (!ecn_enabled) return "ECN is off: nothing but pauses tells the senders. ";
  const PortReport* const port = deepest(report);
  if (report.marked == 0 && port != nullptr) {
    return fmt::format("ECN never marked: no queue grew beyond {} bytes ({}), min is {}: pauses (XOFF) come first. ",
                       port->longest_queue, port->name, ecn_min_bytes);
  }
  return fmt::format("ECN marked {} packets, {} CNPs were sent. ", report.marked, report.cnps);
}

}  // namespace

std::string finding_of(const Report& report, std::uint64_t ecn_min_bytes, bool ecn_enabled) {
  std::string text;
  if (!report.failure.empty()) text += "It failed: " + report.failure + ". ";
  if (!report.deadlock.empty()) text += about_deadlock(report);
  if (report.watchdog != 0) text += about_watchdog(report);
  const bool pauses = report.pause_fraction_max > kNotable;
  if (pauses) text += about_pauses(report);
  if (!pauses && report.pauses_sent != 0) text += "Pauses were few and short. ";
  if (pauses || report.marked != 0) text += about_marks(report, ecn_min_bytes, ecn_enabled);
  if (report.dropped != 0) text += fmt::format("Switches dropped {} packets for want of room. ", report.dropped);
  if (report.lost != 0) {
    text += fmt::format("Links lost {} packets; {} were sent again, {} times only after a timeout. ", report.lost,
                        report.retransmitted, report.timeouts);
  }
  if (report.unroutable != 0) text += fmt::format("{} packets had no way left. ", report.unroutable);
  if (collide(report.uneven)) text += about_ways(report.uneven);
  if (text.empty()) text = "Nothing was paused, marked or lost. ";
  if (!report.groups.empty() && report.comm_ms_per_token > 0) {
    text += fmt::format("A token takes {:.1f} ms, {:.1f} of them communication.", report.ms_per_token,
                        report.comm_ms_per_token);
  }
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

}  // namespace tensorwire::fabric
