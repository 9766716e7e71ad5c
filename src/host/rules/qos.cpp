// From the job's traffic class to a priority: every step at which packets can leave the lossless class.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "host/rules/groups.hpp"
#include "host/rules/queries.hpp"
#include "host/rules/remedies.hpp"

namespace tensorwire::host {

namespace {

constexpr std::array kTrafficClasses = {"NCCL_IB_TC", "NCCL_GIN_IB_TC", "UCX_IB_TRAFFIC_CLASS",
                                        "NVSHMEM_IB_TRAFFIC_CLASS"};

/// Whether the interface's packets may carry a VLAN tag, which has a priority of its own.
bool has_vlan(const RdmaPort& port) {
  for (const Gid& gid : port.gids.value_or({})) {
    if (gid.netdev && gid.netdev->find('.') != std::string::npos) return true;
  }
  return false;
}

/// The lossless priority that `dscp` leads to; nothing where it leads elsewhere or QoS is not known.
std::optional<unsigned> lossless_priority(const Netdev& netdev, unsigned dscp) {
  const auto priority = priority_of(netdev, {dscp << 2, {}});
  return priority && netdev.qos.pfc && netdev.qos.pfc->test(*priority) ? priority : std::nullopt;
}

/// A number below 64 that would be right as a DSCP and is not as a traffic class.
bool looks_like_dscp(const Netdev& netdev, unsigned value) {
  return value != 0 && value < kDscps && lossless_priority(netdev, value) && !lossless_priority(netdev, value >> 2);
}

void trusts_pcp(const Host& host, Judgement& judgement) {
  for (const PortView& view : qos_ports(host)) {
    const Qos& qos = view.netdev->qos;
    if (!qos.trust.is(Trust::kPcp) || !qos.pfc || qos.pfc->none() || has_vlan(*view.port)) continue;
    judgement.found(
        Confidence::kCertain, view.netdev->name,
        "the port trusts the priority of a VLAN tag, and its packets have none: all of them ride in priority "
        "0, whatever their DSCP, while another priority is the lossless one",
        trust_dscp(view, 26, main_priority(*qos.pfc)),
        {evidence(qos.trust, "trust is PCP"), evidence(qos.pfc, "PFC is on for " + shown(*qos.pfc))});
  }
}

void unmapped_dscp(const Host& host, Judgement& judgement) {
  for (const PortView& view : qos_ports(host)) {
    const Qos& qos = view.netdev->qos;
    const auto marking = marking_of(host, *view.port);
    if (!marking || marking->tos == 0 || !qos.trust.is(Trust::kDscp) || !qos.pfc || qos.pfc->none()) continue;
    const auto priority = priority_of(*view.netdev, *marking);
    if (!priority || qos.pfc->test(*priority) || looks_like_dscp(*view.netdev, marking->tos)) continue;
    judgement.found(Confidence::kCertain, view.netdev->name,
                    fmt::format("the job's packets (DSCP {}) are put into priority {}, which is not lossless",
                                marking->dscp(), *priority),
                    trust_dscp(view, marking->dscp(), main_priority(*qos.pfc)),
                    {marking->where,
                     evidence(qos.priority_of_dscp, fmt::format("DSCP {} -> priority {}", marking->dscp(), *priority)),
                     evidence(qos.pfc, "PFC is on for " + shown(*qos.pfc))});
  }
}

void unmarked(const Host& host, Judgement& judgement) {
  for (const PortView& view : qos_ports(host)) {
    const Qos& qos = view.netdev->qos;
    const auto marking = marking_of(host, *view.port);
    if (!marking || marking->tos != 0 || !qos.trust.is(Trust::kDscp) || !qos.pfc || qos.pfc->none()) continue;
    const auto priority = priority_of(*view.netdev, *marking);
    if (!priority || qos.pfc->test(*priority)) continue;
    judgement.found(Confidence::kCertain, view.netdev->name,
                    fmt::format("the job marks its packets with nothing, so they ride in priority {}; the lossless one "
                                "({}) stays empty",
                                *priority, shown(*qos.pfc)),
                    "NCCL_IB_TC=104 (DSCP 26), or the traffic class that your fabric uses, on all ranks",
                    {marking->where, evidence(qos.pfc, "PFC is on for " + shown(*qos.pfc))});
  }
}

void dscp_for_traffic_class(const Host& host, Judgement& judgement) {
  for (const char* name : kTrafficClasses) {
    const Setting* setting = host.process.setting(name);
    const auto value = setting != nullptr ? c_number(setting->value) : std::nullopt;
    if (!value) continue;
    const auto ports = qos_ports(host);
    const bool proven =
        std::ranges::any_of(ports, [&](const PortView& view) { return looks_like_dscp(*view.netdev, *value); });
    const bool known = std::ranges::any_of(
        ports, [](const PortView& view) { return view.netdev->qos.pfc.known() && view.netdev->qos.trust.known(); });
    if (!proven && (known || (*value != 26 && *value != 24))) continue;
    judgement.found(proven ? Confidence::kCertain : Confidence::kLikely, name,
                    fmt::format("{0} is a DSCP, but the variable is the whole traffic class byte, of which DSCP is the "
                                "upper six bits: {0} there is DSCP {1}",
                                *value, *value >> 2),
                    fmt::format("{}={} (DSCP {} << 2)", name, *value << 2, *value), {shown(name, *setting)});
  }
}

void all_in_priority_0(const Host& host, Judgement& judgement) {
  constexpr std::uint64_t kEnough = 1'000'000'000;
  for (const PortView& view : qos_ports(host)) {
    const Netdev& netdev = *view.netdev;
    const auto words = counter(view.port->counters, "port_rcv_data");
    const auto ordinary = counter(netdev.statistics, "rx_prio0_bytes");
    if (!ordinary || *ordinary < kEnough || words.value_or(0) * 4 < kEnough) continue;
    std::uint64_t others = 0;
    for (unsigned p = 1; p < kPriorities; ++p)
      others += counter(netdev.statistics, fmt::format("rx_prio{}_bytes", p)).value_or(0);
    if (others > *ordinary / 1000) continue;
    judgement.found(
        Confidence::kLikely, netdev.name,
        "RDMA traffic came to this host, and all of it in priority 0: the senders do not mark it, or DSCP does "
        "not survive the way",
        "NCCL_IB_TC=104 at the senders; trust DSCP at host and switch",
        {evidence(netdev.statistics,
                  fmt::format("rx_prio0_bytes: {}, rx_prio1..7_bytes together: {}", *ordinary, others)),
         fmt::format("{}/counters/port_rcv_data: {} (4-byte words)", view.port->path, *words)});
  }
}

void lldpad_runs(const Host& host, Judgement& judgement) {
  if (!host.daemons || qos_ports(host).empty()) return;
  for (const std::string& name : *host.daemons) {
    if (name != "lldpad") continue;
    judgement.found(Confidence::kLikely, name,
                    "lldpad runs: it overwrites PFC and ETS with its own, now or when the link comes up, and reports "
                    "success for settings that never reached the driver",
                    "systemctl disable --now lldpad.socket lldpad.service, then apply QoS again",
                    {evidence(host.daemons, name)});
  }
}

void firmware_controls(const Host& host, Judgement& judgement) {
  for (const PortView& view : qos_ports(host)) {
    const auto& controls = view.netdev->qos.host_controls;
    if (!controls.is(false)) continue;
    judgement.found(
        Confidence::kCertain, view.netdev->name,
        "the NIC's firmware negotiates QoS with the switch (DCBX): what is set here is refused or overwritten",
        take_control(view) + (view.device->family == NicFamily::kBroadcom
                                  ? " (where that is refused, switch DCBX off in the NIC's firmware: niccli)"
                                  : ""),
        {evidence(controls, "not controlled by the host")});
  }
}

void service_level_without_vlan(const Host& host, Judgement& judgement) {
  const Setting* level = host.process.setting("NCCL_IB_SL");
  if (level == nullptr || c_number(level->value).value_or(0) == 0) return;
  for (const PortView& view : qos_ports(host)) {
    if (!view.netdev->qos.trust.is(Trust::kDscp)) continue;
    judgement.found(
        Confidence::kCertain, view.netdev->name,
        "the service level chooses a priority only where the port trusts VLAN priorities; here it trusts DSCP",
        "choose the class with NCCL_IB_TC, and leave NCCL_IB_SL out",
        {shown("NCCL_IB_SL", *level), evidence(view.netdev->qos.trust, "trust is DSCP")});
  }
}

void forced_class_misses_devx(const Host& host, Judgement& judgement) {
  if (host.process.setting("NCCL_IB_TC") != nullptr || host.process.setting("NCCL_GIN_IB_TC") != nullptr) return;
  if (host.process.setting("NCCL_GIN_TYPE") == nullptr && host.process.setting("NCCL_GIN_ENABLE") == nullptr) return;
  for (const PortView& view : qos_ports(host)) {
    const auto& forced = view.port->forced_traffic_class;
    if (!forced || forced->value_or(0) == 0) continue;
    judgement.found(
        Confidence::kLikely, view.device->name,
        "the kernel forces a traffic class on queue pairs that it brings up, but NCCL's device-initiated ones "
        "(GIN) go past it: their packets carry traffic class 0 and ride in the lossy class",
        fmt::format("NCCL_GIN_IB_TC={0} NCCL_IB_TC={0}", **forced),
        {evidence(forced, fmt::format("Global tclass={}", **forced)), "NCCL_IB_TC, NCCL_GIN_IB_TC: not set"});
  }
}

// clang-format off
constexpr std::array kQosRules = {
    Rule{"TW-QOS-001", Severity::kError, "DSCP is not trusted",
         "A port sorts packets by the priority in their VLAN tag (PCP) or by DSCP. RoCE on untagged interfaces needs DSCP.",
         trusts_pcp},
    Rule{"TW-QOS-002", Severity::kError, "the job's DSCP leads to a lossy priority",
         "The map from DSCP to priority is dscp >> 3 by default, so 24 to 31 lead to priority 3 already. A map that was "
         "changed, or another DSCP, leads elsewhere.",
         unmapped_dscp},
    Rule{"TW-QOS-003", Severity::kError, "the job does not mark its packets",
         "NCCL's default traffic class is 0. On a fabric whose lossless class is chosen by DSCP everything then rides in "
         "priority 0: it looks healthy until it is loaded.",
         unmarked},
    Rule{"TW-QOS-004", Severity::kError, "a DSCP where the traffic class is wanted",
         "NCCL_IB_TC and its like are the ToS byte: DSCP 26 is 104 there (106 with an ECN bit). 26 is DSCP 6.",
         dscp_for_traffic_class},
    Rule{"TW-QOS-005", Severity::kWarning, "everything rides in priority 0",
         "The NIC counts bytes by priority. RDMA traffic of gigabytes, all of it in priority 0, says more than any "
         "setting. The counters are since the driver was loaded.",
         all_in_priority_0},
    Rule{"TW-QOS-006", Severity::kWarning, "lldpad is running",
         "lldpad speaks DCBX for the host. It has set aside other tools' settings, flapped links by deleting entries, and "
         "printed success without calling the driver.",
         lldpad_runs},
    Rule{"TW-QOS-007", Severity::kWarning, "the firmware is in charge of QoS",
         "With DCBX in firmware the switch's proposal wins. Drivers answer EINVAL or success to settings of the host.",
         firmware_controls},
    Rule{"TW-QOS-008", Severity::kInfo, "a service level that chooses nothing",
         "NCCL_IB_SL becomes a VLAN priority. A port that trusts DSCP does not look at it.",
         service_level_without_vlan},
    Rule{"TW-QOS-009", Severity::kError, "a forced traffic class that GPU-initiated queue pairs do not get",
         "/sys/class/infiniband/*/tc/*/traffic_class is applied when the kernel modifies a queue pair. NCCL's GIN makes its "
         "own through DevX. On a fabric with only one lossless class their first loss hangs a kernel forever.",
         forced_class_misses_devx},
};
// clang-format on

}  // namespace

RuleGroup qos_rules() { return {"From traffic class to priority", kQosRules}; }

}  // namespace tensorwire::host
