// Packet sizes: what an interface's MTU allows, and whether the ends agree.
#include <fmt/format.h>

#include <array>

#include "host/rules/groups.hpp"
#include "host/rules/queries.hpp"

namespace tensorwire::host {

namespace {

/// What InfiniBand's headers and the checksum leave of an Ethernet packet.
constexpr unsigned kOverhead = 96;

unsigned path_mtu(unsigned netdev_mtu) {
  for (const unsigned size : {4096U, 2048U, 1024U, 512U}) {
    if (netdev_mtu >= size + kOverhead) return size;
  }
  return 256;
}

std::string raise_mtu(const Netdev& netdev) {
  return fmt::format("ip link set {} mtu 9000 (4200 is enough), at both hosts and on the switch", netdev.name);
}

void small_mtu(const Host& host, Judgement& judgement) {
  for (const PortView& view : roce_ports(host)) {
    if (view.netdev == nullptr || view.is_software() || !view.netdev->mtu) continue;
    const unsigned mtu = *view.netdev->mtu;
    if (path_mtu(mtu) == 4096) continue;
    judgement.found(
        Confidence::kCertain, view.netdev->name,
        fmt::format("an interface MTU of {} leaves RDMA packets of {} bytes instead of 4096", mtu, path_mtu(mtu)),
        raise_mtu(*view.netdev), {evidence(view.netdev->mtu, std::to_string(mtu))});
  }
}

void mixed_mtu(const Host& host, Judgement& judgement) {
  std::vector<std::string> seen;
  std::string commands;
  unsigned smallest = UINT32_MAX;
  unsigned largest = 0;
  for (const PortView& view : roce_ports(host)) {
    if (view.netdev == nullptr || !view.netdev->mtu) continue;
    commands += fmt::format("{}ip link set {} mtu 9000", commands.empty() ? "" : "; ", view.netdev->name);
    smallest = std::min(smallest, path_mtu(*view.netdev->mtu));
    largest = std::max(largest, path_mtu(*view.netdev->mtu));
    seen.push_back(evidence(view.netdev->mtu, std::to_string(*view.netdev->mtu)));
  }
  if (largest == 0 || smallest == largest) return;
  judgement.found(
      Confidence::kLikely, "MTU",
      fmt::format("ports that one job uses carry packets of {} and of {} bytes: where two such meet, NCCL 2.20 "
                  "and later fails with a local access violation or IBV_WC_LOC_LEN_ERR",
                  smallest, largest),
      commands + " (at the other hosts too)", seen);
}

void peer_sends_larger(const Host& host, Judgement& judgement) {
  for (const PortView& view : qos_ports(host)) {
    const auto count = counter(view.netdev->statistics, "rx_oversize_pkts_phy");
    if (count.value_or(0) == 0) continue;
    judgement.found(Confidence::kLikely, view.netdev->name,
                    "packets came that are larger than this interface's MTU, and were dropped: a peer's MTU is larger",
                    raise_mtu(*view.netdev),
                    {evidence(view.netdev->statistics, fmt::format("rx_oversize_pkts_phy: {}", *count)),
                     view.netdev->mtu ? evidence(view.netdev->mtu, std::to_string(*view.netdev->mtu)) : "MTU unknown"});
  }
}

// clang-format off
constexpr std::array kMtuRules = {
    Rule{"TW-MTU-001", Severity::kWarning, "RDMA packets are smaller than they could be",
         "The path MTU of RDMA follows the interface's, less 96 bytes, down to a power of two: 1500 gives 1024, 4200 gives "
         "4096. Small packets cost a few percent of the rate, and much more where packets a second are the limit.",
         small_mtu},
    Rule{"TW-MTU-002", Severity::kError, "the ports of a job differ in packet size",
         "Since version 2.20 NCCL no longer takes the smaller of both ends' MTU everywhere. What was slow before is an "
         "error now. `tensorwire doctor compare` looks at the other hosts.",
         mixed_mtu},
    Rule{"TW-MTU-003", Severity::kError, "a peer sends packets that do not fit",
         "rx_oversize_pkts_phy counts frames above the MTU of this port.",
         peer_sends_larger},
};
// clang-format on

}  // namespace

RuleGroup mtu_rules() { return {"Packet sizes", kMtuRules}; }

}  // namespace tensorwire::host
