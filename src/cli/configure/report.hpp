// How `tensorwire configure` shows what differs: for people, and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "host/configure/difference.hpp"

namespace tensorwire::cli {

/// What is to be changed, with the commands; then what is as it should be, and what is not known.
[[nodiscard]] std::string report_of(const host::PortDifference& difference);

/// {"interface", "recipe", "changes": [{"part", "now", "wanted", "commands", "undo"}], "equal", "unknown", "refusals"}
[[nodiscard]] nlohmann::json json_of(const std::vector<host::PortDifference>& differences);

}  // namespace tensorwire::cli
