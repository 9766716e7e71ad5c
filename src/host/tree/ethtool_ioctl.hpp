// What `ethtool -S` and `ethtool -a` print, asked of the kernel directly: hosts and containers often lack the tool.
#pragma once

#include <string>

#include "host/tree/tree.hpp"

namespace tensorwire::host {

/// The driver's statistics, a line each.
[[nodiscard]] Answer ethtool_statistics(const std::string& interface);
/// Global (802.3x) flow control.
[[nodiscard]] Answer ethtool_pause(const std::string& interface);

}  // namespace tensorwire::host
