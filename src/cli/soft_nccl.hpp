// What NCCL must be told to run on the user-space HCA: variables, their values and why. A pure function of the devices.
#pragma once

#include <string>
#include <vector>

#include "cli/soft_sysfs.hpp"

namespace tensorwire::cli {

struct NcclVariable {
  const char* name;
  std::string value;
  std::string reason;

  friend bool operator==(const NcclVariable&, const NcclVariable&) = default;
};

/// Nothing without a device. `on_nic` says of each device whether a NIC stands behind its interface: where some have
/// one, the others (bridges of containers, loopback) lead to no other host.
[[nodiscard]] std::vector<NcclVariable> nccl_variables(const std::vector<SoftDeviceFacts>& devices,
                                                       const std::vector<bool>& on_nic);

}  // namespace tensorwire::cli
