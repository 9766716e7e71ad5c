#include "host/activity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "host/rules/queries.hpp"

namespace tensorwire::host {
namespace {

using Count = std::optional<std::uint64_t>;

/// How a driver calls it; {} is the priority, empty where it does not count that.
struct Naming {
  std::string_view sent_bytes, received_bytes, pauses_sent, pauses_received, paused_us, discards;
};

constexpr Naming kMlx5Naming = {"tx_prio{}_bytes", "rx_prio{}_bytes",          "tx_prio{}_pause",
                                "rx_prio{}_pause", "rx_prio{}_pause_duration", "rx_prio{}_discards"};
constexpr Naming kBnxtNaming = {
    "tx_bytes_pri{}", "rx_bytes_pri{}", "tx_pfc_ena_frames_pri{}", "rx_pfc_ena_frames_pri{}", "", ""};
constexpr Naming kIceNaming = {"", "", "tx_priority_{}_xoff.nic", "rx_priority_{}_xoff.nic", "", ""};

/// Which of them the driver uses: its other names give it away.
const Naming& naming_in(const Fact<Counters>& statistics) {
  for (const auto& [name, value] : statistics.value_or({})) {
    if (name.find("_bytes_pri") != std::string::npos || name.find("_ena_frames_pri") != std::string::npos) {
      return kBnxtNaming;
    }
    if (name.starts_with("rx_priority_") || name.starts_with("tx_priority_")) return kIceNaming;
  }
  return kMlx5Naming;
}

/// What moves when a network is congested or loses packets, as mlx5, bnxt_re and irdma call it.
constexpr std::array<std::string_view, 18> kEvents = {"np_ecn_marked_roce_packets",
                                                      "np_cnp_sent",
                                                      "rp_cnp_handled",
                                                      "rp_cnp_ignored",
                                                      "out_of_sequence",
                                                      "packet_seq_err",
                                                      "implied_nak_seq_err",
                                                      "local_ack_timeout_err",
                                                      "rnr_nak_retry_err",
                                                      "out_of_buffer",
                                                      "duplicate_request",
                                                      "to_retransmits",
                                                      "seq_err_naks_rcvd",
                                                      "oos_drop_count",
                                                      "cnpSent",
                                                      "cnpHandled",
                                                      "cnpIgnored",
                                                      "RxECNMrkd"};

/// Less than this in one look says nothing about where a job's data rides.
constexpr std::uint64_t kEnoughBytes = 1'000'000;
/// Of all bytes; the rest is management traffic.
constexpr double kMost = 0.9;

/// Of a counter that was read both times and was not set back in between.
Count difference(const Fact<Counters>& before, const Fact<Counters>& after, std::string_view name) {
  const Count was = counter(before, name);
  const Count is = counter(after, name);
  return was && is && *is >= *was ? Count{*is - *was} : std::nullopt;
}

/// The priority of nearly all bytes.
std::optional<unsigned> main_priority_of(const PortActivity& port, BytesOf bytes) {
  std::uint64_t total = 0;
  for (const PriorityActivity& priority : port.priorities) total += (priority.*bytes).value_or(0);
  if (total < kEnoughBytes) return std::nullopt;
  for (unsigned p = 0; p < kPriorities; ++p) {
    const auto share = static_cast<double>((port.priorities[p].*bytes).value_or(0)) / static_cast<double>(total);
    if (share >= kMost) return p;
  }
  return std::nullopt;
}

std::string lossless_or_not(const Netdev& netdev, unsigned priority) {
  if (!netdev.qos.pfc) return "whether that is lossless is not known";
  return netdev.qos.pfc->test(priority) ? "which is lossless here" : "which is NOT lossless here";
}

void judge_priorities(const Netdev& netdev, PortActivity& port) {
  if (const auto p = main_priority_of(port, &PriorityActivity::sent_bytes)) {
    port.verdicts.push_back(fmt::format("sends in priority {}, {}", *p, lossless_or_not(netdev, *p)));
  }
  const auto p = main_priority_of(port, &PriorityActivity::received_bytes);
  if (!p) return;
  port.verdicts.push_back(fmt::format("receives in priority {}, {}", *p, lossless_or_not(netdev, *p)));
  if (netdev.qos.trust.is(Trust::kDscp) && netdev.qos.pfc && netdev.qos.pfc->test(*p)) {
    port.verdicts.emplace_back("what arrives is put there by its DSCP: that survives the way to this host (proven)");
  }
}

void judge_pauses(Ps elapsed, PortActivity& port) {
  for (unsigned p = 0; p < kPriorities; ++p) {
    const PriorityActivity& priority = port.priorities[p];
    if (priority.pauses_received.value_or(0) != 0) {
      const Ps paused = static_cast<Ps>(priority.paused_us.value_or(0)) * kMicrosecond;
      const std::string how_long = priority.paused_us
                                       ? fmt::format(", {:.0f} % of the time",
                                                     100.0 * static_cast<double>(paused) / static_cast<double>(elapsed))
                                       : std::string{};
      port.verdicts.push_back(fmt::format("is paused in priority {}: its switch port sent {} pauses{}", p,
                                          *priority.pauses_received, how_long));
    }
    if (priority.pauses_sent.value_or(0) != 0) {
      port.verdicts.push_back(
          fmt::format("pauses its switch port in priority {}: {} times, because it takes data in more "
                      "slowly than it comes",
                      p, *priority.pauses_sent));
    }
    if (priority.discards.value_or(0) != 0) {
      port.verdicts.push_back(fmt::format("drops what arrives in priority {}: {} packets", p, *priority.discards));
    }
  }
}

void judge_congestion_control(const Fact<Counters>& before, const Fact<Counters>& after, PortActivity& port) {
  const auto moved = [&](std::string_view name) { return difference(before, after, name); };
  const Count marked = moved("np_ecn_marked_roce_packets");
  const Count answered = moved("np_cnp_sent");
  if (marked.value_or(0) != 0 && answered && *answered == 0) {
    port.verdicts.emplace_back("gets ECN marks and answers none: its notification point is off");
  }
  if (moved("rp_cnp_ignored").value_or(0) != 0) {
    port.verdicts.emplace_back("ignores CNPs: its reaction point is off, or on for another priority");
  }
}

PortActivity activity_of(const PortView& was, const PortView& is, Ps elapsed) {
  PortActivity port;
  port.device = is.device->name;
  port.port = is.port->number;
  const auto words = [&](std::string_view name) -> Count {
    const Count count = difference(was.port->counters, is.port->counters, name);
    return count ? Count{*count * 4} : std::nullopt;
  };
  port.rdma_sent_bytes = words("port_xmit_data");
  port.rdma_received_bytes = words("port_rcv_data");
  for (const std::string_view name : kEvents) {
    const Count count = difference(was.port->counters, is.port->counters, name);
    if (count.value_or(0) != 0) port.events.emplace_back(name, *count);
  }
  if (is.netdev != nullptr && was.netdev != nullptr) {
    port.netdev = is.netdev->name;
    port.priorities = priorities_between(was.netdev->statistics, is.netdev->statistics);
    judge_priorities(*is.netdev, port);
    judge_pauses(elapsed, port);
  }
  judge_congestion_control(was.port->counters, is.port->counters, port);
  return port;
}

}  // namespace

bool PriorityActivity::any() const {
  return sent_bytes || received_bytes || pauses_sent || pauses_received || paused_us || discards;
}

Priorities priorities_between(const Fact<Counters>& before, const Fact<Counters>& after) {
  const Naming& naming = naming_in(after);
  Priorities all;
  for (unsigned p = 0; p < kPriorities; ++p) {
    const auto moved = [&](std::string_view pattern) -> Count {
      return pattern.empty() ? std::nullopt : difference(before, after, fmt::format(fmt::runtime(pattern), p));
    };
    all[p] = {moved(naming.sent_bytes),      moved(naming.received_bytes), moved(naming.pauses_sent),
              moved(naming.pauses_received), moved(naming.paused_us),      moved(naming.discards)};
  }
  return all;
}

std::vector<PortActivity> activity_between(const Host& before, const Host& after, Ps elapsed) {
  std::vector<PortActivity> all;
  const auto earlier = all_ports(before);
  for (const PortView& is : all_ports(after)) {
    const auto was = std::ranges::find_if(earlier, [&](const PortView& view) {
      return view.device->name == is.device->name && view.port->number == is.port->number;
    });
    if (was != earlier.end()) all.push_back(activity_of(*was, is, elapsed));
  }
  return all;
}

}  // namespace tensorwire::host
