// Data centre bridging of an interface, asked of the kernel by netlink (RTM_GETDCB, linux/dcbnl.h, IEEE 802.1Qaz) and
// told in the words of `dcb -j`, so that a host with and a host without iproute2's tool make the same recording.
#pragma once

#include <string>

#include "host/tree/tree.hpp"

namespace tensorwire::host {

// Each is what `dcb -j WHAT show dev INTERFACE` prints. Errors are the kernel's: EOPNOTSUPP where the driver has no
// DCB, ENODEV; ENODATA where it has, but not this part. ETIMEDOUT after a second.
[[nodiscard]] Answer ask_dcb_pfc(const std::string& interface);
[[nodiscard]] Answer ask_dcb_app(const std::string& interface);
[[nodiscard]] Answer ask_dcb_ets(const std::string& interface);
[[nodiscard]] Answer ask_dcb_buffer(const std::string& interface);
[[nodiscard]] Answer ask_dcbx(const std::string& interface);

}  // namespace tensorwire::host
