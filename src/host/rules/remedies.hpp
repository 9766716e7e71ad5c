// The commands that mend an interface, in the words of the NIC's family and of the driver that is installed there.
#pragma once

#include <string>

#include "host/facts/netdev.hpp"
#include "host/rules/queries.hpp"

namespace tensorwire::host {

// MLNX_OFED brings mlnx_qos; the kernel's own drivers are set with iproute2's dcb.

/// The host decides about QoS, not the firmware.
[[nodiscard]] std::string take_control(const PortView& view);
[[nodiscard]] std::string make_lossless(const PortView& view, unsigned priority);
[[nodiscard]] std::string trust_dscp(const PortView& view, unsigned dscp, unsigned priority);
/// A receive buffer that only `priority` uses.
[[nodiscard]] std::string own_buffer(const PortView& view, unsigned priority);
/// `end`: "np", which answers marks, or "rp", which slows down.
[[nodiscard]] std::string enable_ecn(const PortView& view, const char* end, unsigned priority);
/// A setting of an mlx5 NIC's firmware, which takes a reset to count.
[[nodiscard]] std::string set_firmware(const RdmaDevice& device, std::string_view setting, unsigned value);

}  // namespace tensorwire::host
