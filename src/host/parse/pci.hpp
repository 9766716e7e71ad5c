// PCI as sysfs shows it: configuration space as bytes, and the way to a device as a path.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "host/facts/pci.hpp"

namespace tensorwire::host {

/// Access control services in configuration space; nothing where the file ends before the extended capabilities, which
/// only root may read.
[[nodiscard]] std::optional<Acs> acs_in(std::string_view config);
/// "Enable Relaxed Ordering" in Device Control; nothing where the file ends before it.
[[nodiscard]] std::optional<bool> relaxed_ordering_in(std::string_view config);

/// "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0": the last part is the device.
[[nodiscard]] std::optional<PciPath> path_in(std::string_view sysfs_path);

/// The size of BAR 1: the second line "0x... 0x... 0x..." of the file `resource`.
[[nodiscard]] std::optional<std::uint64_t> bar1_in(std::string_view resource);

}  // namespace tensorwire::host
