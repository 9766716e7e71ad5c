#include "host/configure/witness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "host/parse/counters.hpp"
#include "host/parse/text.hpp"
#include "host/read/parts.hpp"

namespace tensorwire::host {
namespace {

/// mlx5 shows counters of pauses only for priorities that have PFC, and those of global pause only where that is on:
/// what the NIC does, not what the kernel keeps of it.
void hear_counters(Tree& tree, const PortState& state, const Wanted& wanted, std::vector<Witness>& all) {
  if (!state.driver.is("mlx5_core")) return;
  const auto counters = fact_of_tool(tree, tool::kEthtoolStatistics, state.netdev, [](std::string_view text) {
    return std::optional{parse_ethtool_statistics(text)};
  });
  if (!counters || !counter(counters, "rx_prio0_bytes")) return;  // not by priority
  PrioritySet with_pauses;
  for (unsigned p = 0; p < kPriorities; ++p)
    with_pauses[p] = counter(counters, fmt::format("rx_prio{}_pause", p)).has_value();
  all.push_back({Part::kPfc, with_pauses == PrioritySet{1ULL << wanted.priority},
                 "priorities with counters of pauses: " + shown(with_pauses), counters.where()});
  const bool global = counter(counters, "rx_global_pause").has_value();
  all.push_back({Part::kPause, !global, global ? "there are counters of global pause" : "no counters of global pause",
                 counters.where()});
}

/// MLNX_OFED shows trust in a file, too, and the CNPs' DSCP in debugfs.
void hear_ofed(Tree& tree, const PortState& state, const Wanted& wanted, std::vector<Witness>& all) {
  if (!state.ofed) return;
  const auto trust = line_in(tree, "/sys/class/net/" + state.netdev + "/qos/trust");
  if (trust) all.push_back({Part::kTrust, *trust == "dscp", *trust, trust.where()});
  const auto map = fact_in_file(tree, "/sys/class/net/" + state.netdev + "/qos/dscp2prio", parse_dscp2prio);
  if (map) {
    const unsigned priority = (*map)[wanted.dscp];
    all.push_back({Part::kDscp, priority == wanted.priority, fmt::format("{}:{}", wanted.dscp, priority), map.where()});
  }
  const auto cnp = number_in_file<unsigned>(tree, "/sys/kernel/debug/mlx5/" + state.pci + "/cc_params/np_cnp_dscp");
  if (cnp) all.push_back({Part::kCnpDscp, *cnp == wanted.cnp_dscp, fmt::to_string(*cnp), cnp.where()});
}

/// Where dcb set it and mlnx_qos is installed all the same.
void hear_mlnx_qos(Tree& tree, const PortState& state, const Wanted& wanted, std::vector<Witness>& all) {
  if (state.ofed || !state.driver.is("mlx5_core")) return;
  const Fact<MlnxQos> printed = fact_of_tool(tree, tool::kMlnxQos, state.netdev,
                                             [](std::string_view text) { return std::optional{parse_mlnx_qos(text)}; });
  if (!printed) return;
  const MlnxQos& qos = *printed;
  if (qos.pfc)
    all.push_back({Part::kPfc, *qos.pfc == PrioritySet{1ULL << wanted.priority}, shown(*qos.pfc), printed.where()});
  if (qos.host_controls)
    all.push_back({Part::kDcbx, *qos.host_controls, *qos.host_controls ? "host" : "firmware", printed.where()});
  if (qos.priority_of_dscp) {
    const unsigned priority = (*qos.priority_of_dscp)[wanted.dscp];
    all.push_back(
        {Part::kDscp, priority == wanted.priority, fmt::format("{}:{}", wanted.dscp, priority), printed.where()});
  }
}

/// "inet eth2 forwarding off rp_filter loose mc_forwarding off ...": by netlink what /proc has as a number.
void hear_netconf(Tree& tree, const PortState& state, std::vector<Witness>& all) {
  if (!state.shares_subnet.is(true)) return;
  const auto word = fact_of_tool(tree, tool::kNetconf, state.netdev, [](std::string_view text) {
    const auto words = words_of(text.substr(0, text.find('\n')));
    const auto at = std::ranges::find(words, "rp_filter");
    return at == words.end() || at + 1 == words.end() ? std::nullopt : std::optional{std::string{*(at + 1)}};
  });
  if (word) all.push_back({Part::kRpFilter, *word != "strict", *word, word.where()});
}

}  // namespace

std::vector<Witness> witnesses(Tree& tree, const PortState& state, const Wanted& wanted) {
  std::vector<Witness> all;
  hear_counters(tree, state, wanted, all);
  hear_ofed(tree, state, wanted, all);
  hear_mlnx_qos(tree, state, wanted, all);
  hear_netconf(tree, state, all);
  return all;
}

std::string_view reading_of(Part part, bool ofed) noexcept {
  switch (part) {
    case Part::kMtu:
      return "in sysfs, set by netlink";
    case Part::kPause:
      return "by ioctl, set by ethtool";
    case Part::kDcbx:
    case Part::kTrust:
    case Part::kDscp:
    case Part::kUdpPort:
    case Part::kTrafficClass:
    case Part::kPfc:
      return ofed ? "by netlink, set by mlnx_qos" : "by netlink, as dcb set it";
    case Part::kEcnNp:
    case Part::kEcnRp:
    case Part::kCnpDscp:
    case Part::kCnpVlanPriority:
    case Part::kCmTos:
    case Part::kNumaBalancing:
    case Part::kArpIgnore:
    case Part::kArpAnnounce:
    case Part::kRpFilter:
      return "in the file that was written";
  }
  return {};
}

}  // namespace tensorwire::host
