// Sources: iproute2's dcb(8), mlnx-tools, the READMEs of bnxt_en and bnxt_re. None of it was run on a NIC yet
// (docs/hardware.md).
#include "host/configure/recipe.hpp"

#include <algorithm>
#include <array>

#include "host/parse/text.hpp"

namespace tensorwire::host {
namespace {

// What the kernel itself does, whatever NIC it is.
constexpr RecipeStep kMtuStep{Part::kMtu, "ip link set dev {if} mtu {value}", "ip link set dev {if} mtu {value}"};
constexpr RecipeStep kPauseStep{Part::kPause, "ethtool -A {if} autoneg off {value}", "ethtool -A {if} {value}"};
constexpr RecipeStep kDcbxStep{Part::kDcbx, "dcb dcbx set dev {if} host ieee", ""};
constexpr RecipeStep kTrafficClassStep{Part::kTrafficClass, "dcb ets set dev {if} {value}",
                                       "dcb ets set dev {if} {value}"};
constexpr RecipeStep kPfcStep{Part::kPfc, "dcb pfc set dev {if} prio-pfc all:off {value}",
                              "dcb pfc set dev {if} prio-pfc all:off {value}"};
constexpr RecipeStep kCmTosStep{Part::kCmTos,
                                "mkdir -p /sys/kernel/config/rdma_cm/{dev}\n"
                                "> /sys/kernel/config/rdma_cm/{dev}/ports/{port}/default_roce_tos {value}",
                                "> /sys/kernel/config/rdma_cm/{dev}/ports/{port}/default_roce_tos {value}"};
constexpr RecipeStep kNumaStep{Part::kNumaBalancing, "> /proc/sys/kernel/numa_balancing {value}",
                               "> /proc/sys/kernel/numa_balancing {value}"};

constexpr RecipeStep kArpIgnoreStep{Part::kArpIgnore, "> /proc/sys/net/ipv4/conf/{if}/arp_ignore {value}",
                                    "> /proc/sys/net/ipv4/conf/{if}/arp_ignore {value}"};
constexpr RecipeStep kArpAnnounceStep{Part::kArpAnnounce, "> /proc/sys/net/ipv4/conf/{if}/arp_announce {value}",
                                      "> /proc/sys/net/ipv4/conf/{if}/arp_announce {value}"};
constexpr RecipeStep kRpFilterStep{Part::kRpFilter, "> /proc/sys/net/ipv4/conf/{if}/rp_filter {value}",
                                   "> /proc/sys/net/ipv4/conf/{if}/rp_filter {value}"};

constexpr std::array kMlx5InBox = {
    kMtuStep,
    kDcbxStep,
    kPauseStep,
    RecipeStep{Part::kDscp, "dcb app replace dev {if} dscp-prio {value}", "dcb app replace dev {if} dscp-prio {value}",
               "dcb app del dev {if} dscp-prio {value}"},
    kTrafficClassStep,
    RecipeStep{Part::kCnpDscp, "> /sys/kernel/debug/mlx5/{pci}/cc_params/np_cnp_dscp {value}",
               "> /sys/kernel/debug/mlx5/{pci}/cc_params/np_cnp_dscp {value}"},
    kCmTosStep,
    kNumaStep,
    kArpIgnoreStep,
    kArpAnnounceStep,
    kRpFilterStep,
    kPfcStep,
};

// mlnx_qos alone: the iproute2 of the distributions that MLNX_OFED is for often has no dcb.
constexpr std::array kMlx5Ofed = {
    kMtuStep,
    RecipeStep{Part::kDcbx, "mlnx_qos -i {if} -d os", "mlnx_qos -i {if} -d fw"},
    kPauseStep,
    RecipeStep{Part::kTrust, "mlnx_qos -i {if} --trust dscp", "mlnx_qos -i {if} --trust pcp"},
    RecipeStep{Part::kDscp, "mlnx_qos -i {if} --dscp2prio set,{code},{to}",
               "mlnx_qos -i {if} --dscp2prio set,{code},{to}", "mlnx_qos -i {if} --dscp2prio del,{code},{to}"},
    RecipeStep{Part::kTrafficClass, "mlnx_qos -i {if} --prio_tc {list} --tsa {tsa} --tcbw {bw}",
               "mlnx_qos -i {if} --prio_tc {list} --tsa {tsa} --tcbw {bw}"},
    RecipeStep{Part::kEcnNp, "> /sys/class/net/{if}/ecn/roce_np/enable/{priority} {value}",
               "> /sys/class/net/{if}/ecn/roce_np/enable/{priority} {value}"},
    RecipeStep{Part::kEcnRp, "> /sys/class/net/{if}/ecn/roce_rp/enable/{priority} {value}",
               "> /sys/class/net/{if}/ecn/roce_rp/enable/{priority} {value}"},
    RecipeStep{Part::kCnpDscp, "> /sys/class/net/{if}/ecn/roce_np/cnp_dscp {value}",
               "> /sys/class/net/{if}/ecn/roce_np/cnp_dscp {value}"},
    RecipeStep{Part::kCnpVlanPriority, "> /sys/class/net/{if}/ecn/roce_np/cnp_802p_prio {value}",
               "> /sys/class/net/{if}/ecn/roce_np/cnp_802p_prio {value}"},
    kCmTosStep,
    kNumaStep,
    kArpIgnoreStep,
    kArpAnnounceStep,
    kRpFilterStep,
    RecipeStep{Part::kPfc, "mlnx_qos -i {if} --pfc {list}", "mlnx_qos -i {if} --pfc {list}"},
};

constexpr std::array kBroadcom = {
    kMtuStep,
    kDcbxStep,
    kPauseStep,
    RecipeStep{Part::kDscp, "dcb app replace dev {if} dscp-prio {value}", "dcb app replace dev {if} dscp-prio {value}",
               "dcb app del dev {if} dscp-prio {value}"},
    RecipeStep{Part::kUdpPort, "dcb app replace dev {if} dgram-port-prio {value}",
               "dcb app replace dev {if} dgram-port-prio {value}", "dcb app del dev {if} dgram-port-prio {value}"},
    kTrafficClassStep,
    kCmTosStep,
    kNumaStep,
    kArpIgnoreStep,
    kArpAnnounceStep,
    kRpFilterStep,
    kPfcStep,
};

constexpr std::array kRecipes = {
    Recipe{"mlx5 with MLNX_OFED", "mlx5_core", true, 6, kMlx5Ofed},
    Recipe{"mlx5, in-box driver", "mlx5_core", false, 6, kMlx5InBox},
    Recipe{"Broadcom bnxt", "bnxt_en bnxt_re", false, 7, kBroadcom},
};

constexpr std::array<std::string_view, kParts> kNames = {"MTU",
                                                         "DCBX",
                                                         "global pause",
                                                         "trust",
                                                         "DSCP to priority",
                                                         "UDP port 4791 to priority",
                                                         "traffic classes",
                                                         "ECN, notification point",
                                                         "ECN, reaction point",
                                                         "DSCP of CNPs",
                                                         "priority of CNPs on a VLAN",
                                                         "RDMA-CM ToS",
                                                         "NUMA balancing",
                                                         "arp_ignore",
                                                         "arp_announce",
                                                         "rp_filter",
                                                         "PFC"};

std::string with_names(std::string_view text, const Names& names) {
  std::string line{text};
  for (const auto& [name, value] : names) {
    for (std::size_t at = line.find(name); at != std::string::npos; at = line.find(name, at + value.size())) {
      line.replace(at, name.size(), value);
    }
  }
  return line;
}

}  // namespace

std::string_view name_of(Part part) noexcept { return kNames[static_cast<std::size_t>(part)]; }

const RecipeStep* Recipe::step(Part part) const noexcept {
  const auto found = std::ranges::find(steps, part, &RecipeStep::part);
  return found == steps.end() ? nullptr : &*found;
}

std::span<const Recipe> recipes() noexcept { return kRecipes; }

const Recipe* find_recipe(std::string_view driver, bool ofed) noexcept {
  const auto fits = [&](const Recipe& recipe) {
    return (!recipe.ofed || ofed) && std::ranges::count(words_of(recipe.drivers), driver) != 0;
  };
  const auto found = std::ranges::find_if(kRecipes, fits);
  return found == kRecipes.end() ? nullptr : &*found;
}

std::vector<std::string> filled(std::string_view commands, const Names& names, const std::string& value) {
  std::vector<std::string> lines;
  for (const std::string_view line : lines_of(commands)) {
    Names all = names;
    all.emplace_back("{value}", value);
    if (line.find("{code}") == std::string_view::npos) {
      lines.push_back(with_names(line, all));
      continue;
    }
    for (const std::string_view entry : words_of(value)) {
      const auto colon = entry.find(':');
      Names with_entry = all;
      with_entry.emplace_back("{code}", entry.substr(0, colon));
      with_entry.emplace_back("{to}", entry.substr(colon + 1));
      lines.push_back(with_names(line, with_entry));
    }
  }
  return lines;
}

}  // namespace tensorwire::host
