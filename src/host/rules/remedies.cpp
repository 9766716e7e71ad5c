#include "host/rules/remedies.hpp"

#include <fmt/format.h>

namespace tensorwire::host {

bool is_ofed(const Netdev& netdev) { return netdev.qos.ecn_np.known(); }

std::string make_lossless(const Netdev& netdev, unsigned priority) {
  if (!is_ofed(netdev)) {
    return fmt::format("dcb pfc set dev {} prio-pfc all:off {}:on (the link flaps once)", netdev.name, priority);
  }
  std::string mask;
  for (unsigned i = 0; i < kPriorities; ++i) mask += fmt::format("{}{}", i == 0 ? "" : ",", i == priority ? 1 : 0);
  return fmt::format("mlnx_qos -i {} --pfc {} (the link flaps once)", netdev.name, mask);
}

std::string trust_dscp(const Netdev& netdev, unsigned dscp, unsigned priority) {
  if (!is_ofed(netdev)) return fmt::format("dcb app replace dev {} dscp-prio {}:{}", netdev.name, dscp, priority);
  return fmt::format("mlnx_qos -i {0} --trust dscp; mlnx_qos -i {0} --dscp2prio set,{1},{2}", netdev.name, dscp,
                     priority);
}

std::string enable_ecn(const PortView& view, const char* end, unsigned priority) {
  if (view.netdev != nullptr && is_ofed(*view.netdev)) {
    return fmt::format("echo 1 > /sys/class/net/{}/ecn/roce_{}/enable/{}", view.netdev->name, end, priority);
  }
  const std::string pci = view.device->pci_address.value_or("PCI-ADDRESS");
  switch (view.device->family) {
    case NicFamily::kMlx5:
      return fmt::format(
          "mlxconfig -d {} set ROCE_CC_PRIO_MASK_P1={}, then mlxfwreset (the kernel's own driver has no "
          "setting for it; /sys/kernel/debug/mlx5/{}/cc_params has the thresholds)",
          pci, 1U << priority, pci);
    case NicFamily::kBroadcom:
      return "niccli: enable congestion control (DCQCN-P) for RoCE on this port";
    case NicFamily::kIntel:
      return "reload irdma with DCQCN enabled for this function: it is off by default";
    default:
      return "enable DCQCN for this priority";
  }
}

}  // namespace tensorwire::host
