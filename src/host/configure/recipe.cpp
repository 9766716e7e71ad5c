// Sources: iproute2's dcb(8), mlnx-tools, the READMEs of bnxt_en and bnxt_re. None of it was run on a NIC yet
// (docs/hardware.md).
#include "host/configure/recipe.hpp"

#include <algorithm>
#include <array>

#include "host/parse/text.hpp"

namespace tensorwire::host {
namespace {

// What the kernel itself does, whatever NIC it is.
constexpr RecipeStep kMtuStep{Part::kMtu, "ip link set dev {if} mtu {new}", "ip link set dev {if} mtu {old}"};
constexpr RecipeStep kPauseStep{Part::kPause, "ethtool -A {if} autoneg off {new}", "ethtool -A {if} {old}"};
constexpr RecipeStep kDcbxStep{Part::kDcbx, "dcb dcbx set dev {if} host ieee", ""};
constexpr RecipeStep kTrafficClassStep{Part::kTrafficClass, "dcb ets set dev {if} prio-tc {new}",
                                       "dcb ets set dev {if} prio-tc {old}"};
constexpr RecipeStep kPfcStep{Part::kPfc, "dcb pfc set dev {if} prio-pfc all:off {new}",
                              "dcb pfc set dev {if} prio-pfc all:off {old}"};
constexpr RecipeStep kCmTosStep{Part::kCmTos,
                                "mkdir -p /sys/kernel/config/rdma_cm/{dev}\n"
                                "> /sys/kernel/config/rdma_cm/{dev}/ports/{port}/default_roce_tos {new}",
                                "> /sys/kernel/config/rdma_cm/{dev}/ports/{port}/default_roce_tos {old}"};
constexpr RecipeStep kNumaStep{Part::kNumaBalancing, "> /proc/sys/kernel/numa_balancing {new}",
                               "> /proc/sys/kernel/numa_balancing {old}"};

constexpr std::array kMlx5InBox = {
    kMtuStep,
    kDcbxStep,
    kPauseStep,
    RecipeStep{Part::kDscp, "dcb app replace dev {if} dscp-prio {new}", "dcb app replace dev {if} dscp-prio {old}",
               "dcb app del dev {if} dscp-prio {added}"},
    kTrafficClassStep,
    kCmTosStep,
    kNumaStep,
    kPfcStep,
};

constexpr std::array kMlx5Ofed = {
    kMtuStep,
    kDcbxStep,
    kPauseStep,
    RecipeStep{Part::kDscp, "mlnx_qos -i {if} --trust dscp\ndcb app replace dev {if} dscp-prio {new}",
               "dcb app replace dev {if} dscp-prio {old}", "mlnx_qos -i {if} --trust pcp"},
    kTrafficClassStep,
    RecipeStep{Part::kEcnNp, "> /sys/class/net/{if}/ecn/roce_np/enable/{priority} {new}",
               "> /sys/class/net/{if}/ecn/roce_np/enable/{priority} {old}"},
    RecipeStep{Part::kEcnRp, "> /sys/class/net/{if}/ecn/roce_rp/enable/{priority} {new}",
               "> /sys/class/net/{if}/ecn/roce_rp/enable/{priority} {old}"},
    RecipeStep{Part::kCnpDscp, "> /sys/class/net/{if}/ecn/roce_np/cnp_dscp {new}",
               "> /sys/class/net/{if}/ecn/roce_np/cnp_dscp {old}"},
    kCmTosStep,
    kNumaStep,
    kPfcStep,
};

constexpr std::array kBroadcom = {
    kMtuStep,
    kDcbxStep,
    kPauseStep,
    RecipeStep{Part::kDscp, "dcb app replace dev {if} dscp-prio {new}", "dcb app replace dev {if} dscp-prio {old}",
               "dcb app del dev {if} dscp-prio {added}"},
    RecipeStep{Part::kUdpPort, "dcb app replace dev {if} dgram-port-prio {new}",
               "dcb app replace dev {if} dgram-port-prio {old}", "dcb app del dev {if} dgram-port-prio {added}"},
    kTrafficClassStep,
    kCmTosStep,
    kNumaStep,
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
                                                         "DSCP to priority",
                                                         "UDP port 4791 to priority",
                                                         "traffic class",
                                                         "ECN, notification point",
                                                         "ECN, reaction point",
                                                         "DSCP of CNPs",
                                                         "RDMA-CM ToS",
                                                         "NUMA balancing",
                                                         "PFC"};

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

std::vector<std::string> filled(std::string_view commands, const Values& values) {
  std::vector<std::string> lines;
  for (const std::string_view template_line : lines_of(commands)) {
    std::string line{template_line};
    for (const auto& [name, value] : values) {
      for (std::size_t at = line.find(name); at != std::string::npos; at = line.find(name, at + value.size())) {
        line.replace(at, name.size(), value);
      }
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace tensorwire::host
