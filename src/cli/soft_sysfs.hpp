// What /sys/class/infiniband would hold if the kernel had the user-space HCA's devices: a pure function from facts
// about a device to files and links. soft_view.hpp shows them to a program; soft_pci.hpp says which PCI device stands
// behind one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "softhca/hca.hpp"

namespace tensorwire::cli {

struct SoftDeviceFacts {
  softhca::DeviceInfo info;
  softhca::PortInfo port;
  std::vector<softhca::GidEntry> gids;
  std::string pci_folder;  ///< canonical path in /sys/devices; empty: none
};

/// A file with `text`, or a symbolic link to it.
struct SysfsEntry {
  std::string path;  ///< below /sys/class/infiniband: "soft1/ports/1/state"
  std::string text;
  bool link = false;

  friend bool operator==(const SysfsEntry&, const SysfsEntry&) = default;
};

/// The devices of this network namespace as they are now, without their PCI folders.
[[nodiscard]] std::vector<SoftDeviceFacts> soft_device_facts();

/// In the formats of the kernel's RDMA core. What the kernel refuses to read (type and interface of an empty GID index)
/// is an empty file.
[[nodiscard]] std::vector<SysfsEntry> sysfs_entries(const SoftDeviceFacts& device);

}  // namespace tensorwire::cli
