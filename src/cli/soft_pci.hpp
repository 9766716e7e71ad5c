// The PCI device that a user-space HCA is said to sit on: topology code (NCCL's) wants one. Reads sysfs only.
#pragma once

#include <filesystem>
#include <string>

namespace tensorwire::cli {

struct PciPlace {
  std::string folder;   ///< canonical; empty: this host shows no PCI device that would do
  std::string reason;   ///< "the NIC of eth0", "next to the GPU 0000:17:00.0"
  bool is_nic = false;  ///< it is the interface's own
};

/// The NIC behind `interface` (with `interface_index`; under a VLAN or a bond, the first one below it). Where there is
/// none: the PCI device with the longest way in common with the first GPU, else the first one; NICs before others,
/// bridges last.
[[nodiscard]] PciPlace pci_place(const std::filesystem::path& sys, const std::string& interface, int interface_index);

}  // namespace tensorwire::cli
