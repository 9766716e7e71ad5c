// Priority flow control: which priorities are lossless, and who stops whom.
#include <fmt/format.h>

#include <array>

#include "host/rules/groups.hpp"
#include "host/rules/queries.hpp"
#include "host/rules/remedies.hpp"

namespace tensorwire::host {

namespace {

constexpr unsigned kUsualPriority = 3;

void nothing_lossless(const Host& host, Judgement& judgement) {
  for (const PortView& view : qos_ports(host)) {
    const Qos& qos = view.netdev->qos;
    if (!qos.pfc) {
      judgement.unknown("lossless priorities of " + view.netdev->name, qos.pfc);
      continue;
    }
    if (qos.pfc->any()) continue;
    judgement.found(Confidence::kCertain, view.netdev->name,
                    "no priority is lossless here: under incast the switch drops RoCE packets, and every drop repeats "
                    "all that follows it",
                    make_lossless(view, kUsualPriority) +
                        ", and the same on the switch; a fabric that is lossy on purpose needs ECN everywhere instead",
                    {evidence(qos.pfc, "PFC is off for all priorities")});
  }
}

void too_many_lossless(const Host& host, Judgement& judgement) {
  for (const PortView& view : qos_ports(host)) {
    const auto& pfc = view.netdev->qos.pfc;
    if (!pfc || (pfc->count() <= 2 && !(pfc->count() == 2 && pfc->test(0)))) continue;
    judgement.found(Confidence::kLikely, view.netdev->name,
                    "PFC is on for ordinary traffic too: one slow receiver of anything stops it, and the pauses spread "
                    "through the switches (head-of-line blocking)",
                    make_lossless(view, kUsualPriority), {evidence(pfc, "PFC is on for " + shown(*pfc))});
  }
}

void global_pause(const Host& host, Judgement& judgement) {
  for (const PortView& view : qos_ports(host)) {
    const auto& pause = view.netdev->qos.pause;
    if (!pause || (!pause->receives && !pause->sends)) continue;
    judgement.found(
        Confidence::kCertain, view.netdev->name,
        "802.3x flow control is on: it stops all priorities at once, and most drivers then leave PFC off",
        fmt::format("ethtool -A {} autoneg off rx off tx off", view.netdev->name),
        {evidence(pause, fmt::format("RX {}, TX {}", pause->receives ? "on" : "off", pause->sends ? "on" : "off"))});
  }
}

void pause_storm(const Host& host, Judgement& judgement) {
  for (const PortView& view : qos_ports(host)) {
    std::vector<std::string> seen;
    for (const char* name : {"tx_pause_storm_warning_events", "tx_pause_storm_error_events"}) {
      const auto count = counter(view.netdev->statistics, name);
      if (count.value_or(0) != 0)
        seen.push_back(evidence(view.netdev->statistics, fmt::format("{}: {}", name, *count)));
    }
    if (seen.empty()) continue;
    judgement.found(
        Confidence::kCertain, view.netdev->name,
        "this NIC sent pause frames for so long that its storm watchdog spoke: its receive buffers are not "
        "emptied (a hung host, a slow PCIe link, buffers in slow memory), and everybody who sends to it waits",
        "look for PCIe findings and outbound_pci_stalled_wr on this host; take the port down until then", seen);
  }
}

struct PauseCount {
  unsigned priority = 0;
  std::uint64_t sent = 0, received = 0, packets = 0;
};

std::vector<PauseCount> pauses_of(const Netdev& netdev) {
  std::vector<PauseCount> counts;
  for (unsigned p = 0; p < kPriorities; ++p) {
    const auto of = [&](const char* form) { return counter(netdev.statistics, fmt::format(fmt::runtime(form), p)); };
    const auto sent = of("tx_prio{}_pause");
    const auto received = of("rx_prio{}_pause");
    if (sent || received)
      counts.push_back({p, sent.value_or(0), received.value_or(0), of("rx_prio{}_packets").value_or(0)});
  }
  return counts;
}

/// More than a thousand, and more than one for each hundred packets received.
bool is_slow_receiver(const PauseCount& count) { return count.sent > 1000 && count.sent > count.packets / 100; }

void slow_receiver(const Host& host, Judgement& judgement) {
  for (const PortView& view : qos_ports(host)) {
    for (const PauseCount& count : pauses_of(*view.netdev)) {
      if (!is_slow_receiver(count)) continue;
      judgement.found(
          Confidence::kLikely, view.netdev->name,
          "this host pauses its switch often: it does not take packets as fast as they come, and the pauses "
          "spread to senders that have nothing to do with it",
          "look for a PCIe link below its best, an IOMMU that translates, memory of a far NUMA node; and "
          "let ECN slow the senders down before PFC stops them",
          {evidence(view.netdev->statistics, fmt::format("tx_prio{0}_pause: {1}, rx_prio{0}_packets: {2}",
                                                         count.priority, count.sent, count.packets))});
    }
  }
}

void pause_in_wrong_priority(const Host& host, Judgement& judgement) {
  for (const PortView& view : qos_ports(host)) {
    const auto& pfc = view.netdev->qos.pfc;
    for (const PauseCount& count : pauses_of(*view.netdev)) {
      if (!pfc || pfc->test(count.priority) || count.received == 0) continue;
      judgement.found(
          Confidence::kLikely, view.netdev->name,
          fmt::format("the switch sends pauses for priority {}, which is not lossless here: the two ends of "
                      "the cable disagree about the lossless priority",
                      count.priority),
          make_lossless(view, count.priority) + ", or change the switch port",
          {evidence(view.netdev->statistics, fmt::format("rx_prio{}_pause: {}", count.priority, count.received)),
           evidence(pfc, "PFC is on for " + shown(*pfc))});
    }
  }
}

void no_buffer_of_its_own(const Host& host, Judgement& judgement) {
  for (const PortView& view : qos_ports(host)) {
    const Qos& qos = view.netdev->qos;
    if (!qos.pfc || !qos.buffer || !qos.buffer_bytes) continue;
    for (unsigned priority = 0; priority < kPriorities; ++priority) {
      if (!qos.pfc->test(priority)) continue;
      const unsigned buffer = (*qos.buffer)[priority];
      const std::uint32_t bytes = (*qos.buffer_bytes)[buffer];
      bool shared = false;
      for (unsigned other = 0; other < kPriorities; ++other)
        shared = shared || (!qos.pfc->test(other) && (*qos.buffer)[other] == buffer);
      if (bytes != 0 && !shared) continue;
      judgement.found(
          bytes == 0 ? Confidence::kCertain : Confidence::kLikely, view.netdev->name,
          bytes == 0
              ? fmt::format("the receive buffer of priority {} has no bytes: PFC cannot keep a packet", priority)
              : fmt::format("priority {} shares its receive buffer with lossy ones: there is no threshold at which "
                            "it alone is paused, nor room for what is still under way then",
                            priority),
          own_buffer(view, priority) + " (sizes: more for long cables)",
          {evidence(qos.buffer, fmt::format("priority {} -> buffer {}", priority, buffer)),
           evidence(qos.buffer_bytes, fmt::format("buffer {}: {} bytes", buffer, bytes))});
    }
  }
}

// clang-format off
constexpr std::array kPfcRules = {
    Rule{"TW-PFC-001", Severity::kWarning, "no lossless priority",
         "RoCE's go-back-N takes one loss badly. A lossless class (PFC) at host and switch keeps bursts of many senders to "
         "one receiver from being dropped. No setting of it survives a reboot unless something applies it again.",
         nothing_lossless},
    Rule{"TW-PFC-002", Severity::kWarning, "too many lossless priorities",
         "PFC belongs on the one priority that RoCE rides in. On others, and on priority 0 above all, it lets ordinary "
         "traffic stop the fabric.",
         too_many_lossless},
    Rule{"TW-PFC-003", Severity::kError, "global pause is on",
         "802.3x pause frames know no priorities. They are the default of many drivers, come back after a reboot, and "
         "exclude PFC.",
         global_pause},
    Rule{"TW-PFC-004", Severity::kError, "pause storm",
         "A NIC that cannot deliver packets to its host pauses the switch without end, the switch pauses its senders, and "
         "so on. mlx5 counts when that lasts too long.",
         pause_storm},
    Rule{"TW-PFC-005", Severity::kWarning, "a receiver that pauses its switch often",
         "Pauses sent mean that this host is the bottleneck. Public reports name buffers in host memory where the GPU's was "
         "meant, PCIe links below their best, and address translation.",
         slow_receiver},
    Rule{"TW-PFC-006", Severity::kError, "host and switch disagree about the lossless priority",
         "Pauses that come for another priority than the host's lossless one are not obeyed, and RoCE packets are dropped "
         "in a class that somebody believes to be lossless.",
         pause_in_wrong_priority},
    Rule{"TW-PFC-007", Severity::kWarning, "the lossless priority has no buffer of its own",
         "PFC pauses a priority when its buffer is filled to a threshold, and needs room above it for packets that are under "
         "way. mlx5 computes both from MTU and cable length for buffers that hold lossless priorities only.",
         no_buffer_of_its_own},
};
// clang-format on

}  // namespace

RuleGroup pfc_rules() { return {"Priority flow control", kPfcRules}; }

}  // namespace tensorwire::host
