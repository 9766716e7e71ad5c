// The settings of an mlx5 NIC's firmware, as the vendor's tool prints them. It takes a second or more for each NIC and
// wants root, so it is asked only where that does not matter.
#pragma once

#include <string>

#include "host/tree/tree.hpp"

namespace tensorwire::host {

/// `mlxconfig -d PCI -e query` (MFT), or `mstconfig` (mstflint), which prints the same. ENOENT: neither is installed.
[[nodiscard]] Answer firmware_settings(const std::string& pci_address);

}  // namespace tensorwire::host
