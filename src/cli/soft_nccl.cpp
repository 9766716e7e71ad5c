#include "cli/soft_nccl.hpp"

#include <algorithm>

#include "softhca/devices.hpp"

namespace tensorwire::cli {

namespace {

using Choice = std::vector<const SoftDeviceFacts*>;

Choice reachable_devices(const std::vector<SoftDeviceFacts>& devices, const std::vector<bool>& on_nic) {
  Choice on_nics, of_networks, all;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    all.push_back(&devices[i]);
    if (!softhca::is_loopback(devices[i].info.ipv4)) of_networks.push_back(&devices[i]);
    if (on_nic[i]) on_nics.push_back(&devices[i]);
  }
  if (!on_nics.empty()) return on_nics;
  return of_networks.empty() ? all : of_networks;
}

/// The first of each interface. NCCL makes one device of all that one NIC stands behind and cuts each message into as
/// many pieces: over four addresses of one cable 256 KiB took 1163 us, over one 255.
Choice one_for_each_interface(Choice devices) {
  std::vector<std::string_view> seen;
  std::erase_if(devices, [&seen](const SoftDeviceFacts* device) {
    const std::string_view interface = device->info.interface;
    if (std::ranges::find(seen, interface) != seen.end()) return true;
    seen.push_back(interface);
    return false;
  });
  return devices;
}

/// The index of the address that packets can be sent from; it is the same for all devices of a layout.
std::size_t ipv4_index(const SoftDeviceFacts& device) {
  const auto found =
      std::ranges::find_if(device.gids, [](const softhca::GidEntry& gid) { return gid.usable && gid.gid.is_ipv4(); });
  return static_cast<std::size_t>(found - device.gids.begin());
}

}  // namespace

std::vector<NcclVariable> nccl_variables(const std::vector<SoftDeviceFacts>& devices, const std::vector<bool>& on_nic) {
  const Choice chosen = one_for_each_interface(reachable_devices(devices, on_nic));
  if (chosen.empty()) return {};
  std::string names = "=";  // exactly these: soft1 would be soft10 as well
  for (const SoftDeviceFacts* device : chosen) names += (names.size() > 1 ? "," : "") + device->info.name;

  std::vector<NcclVariable> variables{{"NCCL_IB_HCA", names, "the user-space HCA's devices that lead to other hosts"}};
  const std::size_t index = ipv4_index(*chosen.front());
  if (index < chosen.front()->gids.size()) {
    variables.push_back({"NCCL_IB_GID_INDEX", std::to_string(index), "the RoCE v2 entry of the IPv4 address"});
  }
  variables.push_back(
      {"NCCL_GIN_TYPE", "2", "NCCL 2.28.9 otherwise crashes on RDMA devices that are not ConnectX ones"});
  return variables;
}

}  // namespace tensorwire::cli
