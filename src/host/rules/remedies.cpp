#include "host/rules/remedies.hpp"

#include <fmt/format.h>

#include <numeric>

namespace tensorwire::host {

namespace {

/// "0,0,0,1,0,0,0,0"
std::string only(unsigned priority) {
  std::string list;
  for (unsigned i = 0; i < kPriorities; ++i) list += fmt::format("{}{}", i == 0 ? "" : ",", i == priority ? 1 : 0);
  return list;
}

/// What has to come before a setting that the firmware would refuse or overwrite.
std::string first_take_control(const PortView& view) {
  return view.netdev->qos.host_controls.is(false) ? take_control(view) + "; " : "";
}

}  // namespace

std::string take_control(const PortView& view) {
  const std::string& name = view.netdev->name;
  if (view.netdev->ofed) return fmt::format("mlnx_qos -i {} -d os", name);
  if (view.device->family == NicFamily::kIntel)
    return fmt::format("ethtool --set-priv-flags {} fw-lldp-agent off", name);
  return fmt::format("dcb dcbx set dev {} host ieee", name);
}

std::string make_lossless(const PortView& view, unsigned priority) {
  const std::string& name = view.netdev->name;
  const std::string set = view.netdev->ofed ? fmt::format("mlnx_qos -i {} --pfc {}", name, only(priority))
                                            : fmt::format("dcb pfc set dev {} prio-pfc all:off {}:on", name, priority);
  return first_take_control(view) + set + " (the link flaps once)";
}

std::string trust_dscp(const PortView& view, unsigned dscp, unsigned priority) {
  const std::string& name = view.netdev->name;
  if (view.netdev->ofed) {
    // The program refuses both options at once.
    const std::string trust =
        view.netdev->qos.trust.is(Trust::kDscp) ? "" : fmt::format("mlnx_qos -i {} --trust dscp; ", name);
    return first_take_control(view) + trust + fmt::format("mlnx_qos -i {} --dscp2prio set,{},{}", name, dscp, priority);
  }
  std::string set = fmt::format("dcb app replace dev {} dscp-prio {}:{}", name, dscp, priority);
  if (view.device->family == NicFamily::kBroadcom)
    set += fmt::format("; dcb app replace dev {} dgram-port-prio 4791:{}", name, priority);
  return first_take_control(view) + set;
}

std::string own_buffer(const PortView& view, unsigned priority) {
  constexpr std::uint32_t kOrdinary = 19'872;  // what mlx5 leaves for lossy priorities
  const std::string& name = view.netdev->name;
  const auto& bytes = *view.netdev->qos.buffer_bytes;
  const auto all = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
  const std::uint64_t rest = all > 2 * kOrdinary ? all - kOrdinary : kOrdinary;
  if (view.netdev->ofed) {
    return fmt::format("mlnx_qos -i {} --prio2buffer {}; mlnx_qos -i {} --buffer_size {},{},0,0,0,0,0,0", name,
                       only(priority), name, kOrdinary, rest);
  }
  return fmt::format("dcb buffer set dev {} prio-buffer all:0 {}:1 buffer-size all:0 0:{} 1:{}", name, priority,
                     kOrdinary, rest);
}

std::string set_firmware(const RdmaDevice& device, std::string_view setting, unsigned value) {
  const std::string pci = device.pci_address.value_or("PCI-ADDRESS");
  return fmt::format(
      "mlxconfig -d {0} set {1}={2}; mlxfwreset -d {0} reset, or a reboot (mstconfig and mstfwreset of mstflint do the "
      "same)",
      pci, setting, value);
}

std::string enable_ecn(const PortView& view, const char* end, unsigned priority) {
  if (view.netdev != nullptr && view.netdev->ofed) {
    return fmt::format("echo 1 > /sys/class/net/{}/ecn/roce_{}/enable/{}", view.netdev->name, end, priority);
  }
  switch (view.device->family) {
    case NicFamily::kMlx5:
      return "the kernel's own driver has no setting for it: " +
             set_firmware(*view.device, fmt::format("ROCE_CC_PRIO_MASK_P{}", view.port->number), 1U << priority);
    case NicFamily::kBroadcom:
      return "niccli: enable congestion control (DCQCN-P) for RoCE on this port";
    case NicFamily::kIntel:
      return "reload irdma with DCQCN enabled for this function: it is off by default";
    default:
      return "enable DCQCN for this priority";
  }
}

}  // namespace tensorwire::host
