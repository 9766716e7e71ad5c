// Congestion control: marks (ECN), notifications (CNP), and the losses that tell of its absence.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "host/rules/groups.hpp"
#include "host/rules/queries.hpp"
#include "host/rules/remedies.hpp"

namespace tensorwire::host {

namespace {

/// "port: name: value" for each counter that exists.
std::vector<std::string> shown_counters(const RdmaPort& port, std::initializer_list<const char*> names) {
  std::vector<std::string> lines;
  for (const char* name : names) {
    if (const auto value = counter(port.counters, name)) {
      lines.push_back(fmt::format("{}/hw_counters/{}: {}", port.path, name, *value));
    }
  }
  return lines;
}

std::uint64_t count_of(const RdmaPort& port, const char* name) { return counter(port.counters, name).value_or(0); }

/// The one that data is meant to ride in; 3 where that is not known.
unsigned lossless_priority_of(const PortView& view) {
  return main_priority(view.netdev != nullptr ? view.netdev->qos.pfc.value_or({}) : PrioritySet{});
}

/// The end of congestion control that is off for a lossless priority.
void end_is_off(const Host& host, Judgement& judgement, const char* end, Fact<PrioritySet> Qos::*enabled,
                const std::string& cause) {
  for (const PortView& view : qos_ports(host)) {
    const Qos& qos = view.netdev->qos;
    const auto& on = qos.*enabled;
    if (!on || !qos.pfc) continue;  // in-box drivers do not show it: nothing to judge by
    for (unsigned priority = 0; priority < kPriorities; ++priority) {
      if (!qos.pfc->test(priority) || on->test(priority)) continue;
      judgement.found(Confidence::kCertain, view.netdev->name, fmt::format(fmt::runtime(cause), priority),
                      enable_ecn(view, end, priority),
                      {evidence(on, "on for " + shown(*on)), evidence(qos.pfc, "PFC is on for " + shown(*qos.pfc))});
    }
  }
}

void np_off(const Host& host, Judgement& judgement) {
  end_is_off(
      host, judgement, "np", &Qos::ecn_np,
      "the notification point is off for priority {}: packets that a switch marked are not answered with CNPs, so "
      "no sender slows down and PFC has to stop it");
}

void rp_off(const Host& host, Judgement& judgement) {
  end_is_off(host, judgement, "rp", &Qos::ecn_rp,
             "the reaction point is off for priority {}: this host does not slow down when CNPs tell it to, and PFC "
             "stops everybody instead");
}

void marks_unanswered(const Host& host, Judgement& judgement) {
  for (const PortView& view : roce_ports(host)) {
    const CongestionCounters counted = congestion_counters(*view.port);
    if (counted.marked.value_or(0) < 100 || !counted.sent || *counted.sent != 0) continue;
    judgement.found(
        Confidence::kCertain, view.device->name,
        "switches marked packets to this host and it never sent a CNP: the notification point is off for the "
        "priority in which they ride",
        enable_ecn(view, "np", lossless_priority_of(view)),
        shown_counters(*view.port, {"np_ecn_marked_roce_packets", "np_cnp_sent", "RxECNMrkd", "cnpSent",
                                    "rx_ecn_marked_pkts", "tx_cnp_pkts"}));
  }
}

void notifications_ignored(const Host& host, Judgement& judgement) {
  for (const PortView& view : roce_ports(host)) {
    const CongestionCounters counted = congestion_counters(*view.port);
    const std::uint64_t ignored = counted.ignored.value_or(0);
    const std::uint64_t handled = counted.handled.value_or(0);
    if (ignored < 100 || ignored < handled / 100) continue;
    judgement.found(Confidence::kLikely, view.device->name,
                    "CNPs come and are ignored: the reaction point is off, or on for another priority than that of the "
                    "traffic",
                    enable_ecn(view, "rp", lossless_priority_of(view)),
                    shown_counters(*view.port, {"rp_cnp_ignored", "rp_cnp_handled", "cnpIgnored", "cnpHandled"}));
  }
}

std::uint64_t losses(const RdmaPort& port) {
  return count_of(port, "packet_seq_err") + count_of(port, "out_of_sequence") +
         count_of(port, "local_ack_timeout_err") + count_of(port, "seq_err_naks_rcvd") +
         count_of(port, "oos_drop_count");
}

constexpr std::uint64_t kManyLosses = 1000;

void lost_unmarked(const Host& host, Judgement& judgement) {
  for (const PortView& view : roce_ports(host)) {
    const auto marked = counter(view.port->counters, "np_ecn_marked_roce_packets");
    if (losses(*view.port) < kManyLosses || !marked || *marked != 0) continue;
    judgement.found(
        Confidence::kLikely, view.device->name,
        "packets were lost again and again and none ever came marked: the switches drop this traffic without "
        "marking it first, as they do in a class without ECN (priority 0)",
        "switch on ECN marking for the class that RoCE rides in, and see that the job's DSCP leads there",
        shown_counters(*view.port, {"local_ack_timeout_err", "out_of_sequence", "packet_seq_err",
                                    "np_ecn_marked_roce_packets", "np_cnp_sent"}));
  }
}

void lost_in_spite_of_marks(const Host& host, Judgement& judgement) {
  for (const PortView& view : roce_ports(host)) {
    const std::uint64_t marked = count_of(*view.port, "np_ecn_marked_roce_packets");
    if (losses(*view.port) < 100 * kManyLosses || marked == 0) continue;
    judgement.found(
        Confidence::kLikely, view.device->name,
        "congestion control is at work and packets are lost all the same: marking begins too late, the class "
        "is not lossless, or more senders meet at one port than rates can be divided among",
        "lower the switch's marking thresholds (Kmin, Kmax), check PFC and its buffers along the path",
        shown_counters(*view.port, {"local_ack_timeout_err", "out_of_sequence", "packet_seq_err",
                                    "np_ecn_marked_roce_packets", "np_cnp_sent"}));
  }
}

/// Where the port trusts the priority in a VLAN tag, that of CNPs is a setting of its own.
void tagged_cnp_rides_with_data(const PortView& view, Judgement& judgement) {
  const Qos& qos = view.netdev->qos;
  if (!qos.trust.is(Trust::kPcp) || !qos.pfc || qos.cnp_vlan_priority.value_or(kPriorities) >= kPriorities) return;
  if (!qos.pfc->test(*qos.cnp_vlan_priority)) return;
  judgement.found(Confidence::kLikely, view.netdev->name,
                  fmt::format("CNPs on a VLAN ride in priority {}, the lossless one: where it is paused they wait with "
                              "the data that they should slow down",
                              *qos.cnp_vlan_priority),
                  fmt::format("echo 6 > {}", qos.cnp_vlan_priority.where()),
                  {evidence(qos.cnp_vlan_priority, std::to_string(*qos.cnp_vlan_priority)),
                   evidence(qos.trust, "trust is PCP"), evidence(qos.pfc, "PFC is on for " + shown(*qos.pfc))});
}

void cnp_rides_with_data(const Host& host, Judgement& judgement) {
  for (const PortView& view : qos_ports(host)) {
    const Qos& qos = view.netdev->qos;
    tagged_cnp_rides_with_data(view, judgement);
    if (!qos.cnp_dscp || *qos.cnp_dscp >= kDscps || !qos.priority_of_dscp || !qos.pfc || !qos.trust.is(Trust::kDscp))
      continue;
    const unsigned priority = (*qos.priority_of_dscp)[*qos.cnp_dscp];
    if (!qos.pfc->test(priority)) continue;
    judgement.found(
        Confidence::kLikely, view.netdev->name,
        fmt::format("CNPs (DSCP {}) ride in priority {}, the lossless one: where it is paused they wait with "
                    "the data that they should slow down",
                    *qos.cnp_dscp, priority),
        fmt::format("echo 48 > {}; {}", qos.cnp_dscp.where(), trust_dscp(view, 48, 6)),
        {evidence(qos.cnp_dscp, std::to_string(*qos.cnp_dscp)),
         evidence(qos.priority_of_dscp, fmt::format("DSCP {} -> priority {}", *qos.cnp_dscp, priority))});
  }
}

bool is_on_a_bond(const PortView& view) {
  return view.device->name.find("bond") != std::string::npos ||
         (view.netdev != nullptr && (view.netdev->slaves.size() >= 2 || !view.netdev->bond.empty()));
}

/// The libraries of the job that offer a peer other congestion control than the legacy one, each with what forbids it.
std::vector<std::string> switches_of_ece(const Host& host) {
  const auto mapped = [&host](std::string_view library) {
    return std::ranges::any_of(host.process.libraries.value_or({}),
                               [&](const std::string& path) { return path.find(library) != std::string::npos; });
  };
  const auto is_off = [&host](const char* name) {
    const Setting* setting = host.process.setting(name);
    return setting != nullptr && (setting->value == "0" || setting->value == "n" || setting->value == "no");
  };
  std::vector<std::string> switches;
  if (mapped("/libnccl.so") && !is_off("NCCL_IB_ECE_ENABLE")) switches.emplace_back("NCCL_IB_ECE_ENABLE=0");
  if (mapped("/libucp.so") && !is_off("UCX_RC_ECE")) switches.emplace_back("UCX_RC_ECE=0");
  return switches;
}

void ece_on_a_bond(const Host& host, Judgement& judgement) {
  const auto switches = switches_of_ece(host);
  if (switches.empty()) return;
  for (const PortView& view : roce_ports(host)) {
    if (view.device->family != NicFamily::kMlx5 || !is_on_a_bond(view)) continue;
    const auto& firmware = view.device->firmware_settings;
    if (!firmware) {
      judgement.unknown("whether the firmware of " + view.device->name + " may leave DCQCN (ROCE_CC_LEGACY_DCQCN)",
                        firmware);
      continue;
    }
    const auto legacy = firmware->find("ROCE_CC_LEGACY_DCQCN");
    if (legacy == firmware->end() || !legacy->second.starts_with("False")) continue;
    judgement.found(
        Confidence::kLikely, view.device->name,
        "the device is a bond, its firmware may use other congestion control than DCQCN, and the job's libraries let "
        "the "
        "two ends agree on it (ECE): it measures round trips, which two links do not have in common, and rates "
        "collapse",
        fmt::format("{}; or {}", fmt::join(switches, " "), set_firmware(*view.device, "ROCE_CC_LEGACY_DCQCN", 1)),
        {evidence(firmware, "ROCE_CC_LEGACY_DCQCN " + legacy->second),
         fmt::format("{}: not set", fmt::join(switches, ", "))});
  }
}

/// Parameters of mlx5's DCQCN that make it of no use, whatever else is tuned.
void parameters_without_use(const Host& host, Judgement& judgement) {
  constexpr std::uint64_t kLongUs = 1000;
  for (const PortView& view : roce_ports(host)) {
    const auto& all = view.device->dcqcn;
    const auto between_cnps = counter(all, "np_min_time_between_cnps");
    const auto most = counter(all, "rp_max_rate");
    const double mbps = view.port->rate_gbps.value_or(0) * 1000;
    std::vector<std::string> seen;
    std::vector<std::string> commands;
    if (between_cnps.value_or(0) > kLongUs) {
      seen.push_back(fmt::format("{}/np_min_time_between_cnps: {} (microseconds)", all.where(), *between_cnps));
      commands.push_back(fmt::format("echo 4 > {}/np_min_time_between_cnps", all.where()));
    }
    if (most.value_or(0) != 0 && static_cast<double>(*most) < mbps) {
      seen.push_back(fmt::format("{}/rp_max_rate: {} (Mbit/s, of {})", all.where(), *most, mbps));
      commands.push_back(fmt::format("echo 0 > {}/rp_max_rate (no limit)", all.where()));
    }
    if (seen.empty()) continue;
    judgement.found(
        Confidence::kPossible, view.device->name,
        "congestion control has parameters that no fabric wants: notifications too far apart for a sender to "
        "follow, or a rate that it never exceeds again",
        fmt::format("{}", fmt::join(commands, "; ")), seen);
  }
}

// clang-format off
constexpr std::array kEcnRules = {
    Rule{"TW-ECN-001", Severity::kError, "ECN notification point off",
         "DCQCN has three parts: the switch marks, the receiver (notification point) answers marks with CNPs, the sender "
         "(reaction point) slows down. Without the second, queues grow until PFC pauses everybody behind them.",
         np_off},
    Rule{"TW-ECN-002", Severity::kError, "ECN reaction point off",
         "The sender's part of DCQCN. Where it is off, one host keeps its rate while all others give way.",
         rp_off},
    Rule{"TW-ECN-003", Severity::kError, "marked packets are never answered",
         "Counters prove what settings may hide: np_ecn_marked_roce_packets rises, np_cnp_sent stays 0.",
         marks_unanswered},
    Rule{"TW-ECN-004", Severity::kWarning, "congestion notifications are ignored",
         "rp_cnp_ignored rises where the reaction point is off for the priority of the flow that a CNP is about.",
         notifications_ignored},
    Rule{"TW-ECN-005", Severity::kWarning, "losses without a single mark",
         "A class with ECN shows marks long before it drops. Losses without any point to a class that nobody configured, "
         "which is priority 0 most of the time. The counters are since the driver was loaded.",
         lost_unmarked},
    Rule{"TW-ECN-006", Severity::kWarning, "losses although congestion control works",
         "Marks and CNPs in the millions beside as many lost packets: the control loop is closed, but not tight enough. The "
         "counters are since the driver was loaded.",
         lost_in_spite_of_marks},
    Rule{"TW-ECN-007", Severity::kWarning, "CNPs ride in the class that they should relieve",
         "CNPs want a class of their own with strict priority: DSCP 48, priority 6 (7 on Broadcom). All hosts must agree.",
         cnp_rides_with_data},
    Rule{"TW-ECN-008", Severity::kWarning, "parameters of congestion control that undo it",
         "mlx5 shows DCQCN's parameters in debugfs (cc_params), to root. Most of them are matters of taste; a notification "
         "every millisecond at most, or a ceiling below the port's rate, are not.",
         parameters_without_use},
    Rule{"TW-ECN-009", Severity::kWarning, "a bond whose ends may agree on other congestion control",
         "With enhanced connection establishment (ECE) two mlx5 NICs can settle on congestion control by round-trip time. UCX "
         "1.22 applies it by default, NCCL too. On a bond public reports have 2.9 MB/s instead of 23 GB/s. The firmware's "
         "settings are read with --firmware only.",
         ece_on_a_bond},
};
// clang-format on

}  // namespace

RuleGroup ecn_rules() { return {"Congestion control (ECN, DCQCN)", kEcnRules}; }

}  // namespace tensorwire::host
