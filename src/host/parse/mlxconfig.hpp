// `mlxconfig query` and `mstconfig query`: the settings of an mlx5 NIC's firmware.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tensorwire::host {

/// "PCI_WR_ORDERING" -> "per_mkey(0)". With -e the current value, which the firmware works by; else that of the next
/// boot. Nothing where the text is not of that tool.
[[nodiscard]] std::optional<std::map<std::string, std::string, std::less<>>> parse_mlxconfig(std::string_view text);

/// The lines that rules ask for, without those that describe the card.
[[nodiscard]] std::string fabric_settings(std::string_view text);

}  // namespace tensorwire::host
