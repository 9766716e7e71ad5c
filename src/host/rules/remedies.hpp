// The commands that mend an interface's QoS, in the words of the driver that is installed there.
#pragma once

#include <string>

#include "host/facts/netdev.hpp"
#include "host/rules/queries.hpp"

namespace tensorwire::host {

/// MLNX_OFED shows ECN in sysfs and brings mlnx_qos; the kernel's own drivers are set with iproute2's dcb.
[[nodiscard]] bool is_ofed(const Netdev& netdev);
[[nodiscard]] std::string make_lossless(const Netdev& netdev, unsigned priority);
[[nodiscard]] std::string trust_dscp(const Netdev& netdev, unsigned dscp, unsigned priority);
/// `end`: "np", which answers marks, or "rp", which slows down.
[[nodiscard]] std::string enable_ecn(const PortView& view, const char* end, unsigned priority);

}  // namespace tensorwire::host
