// The report as a page: one file, no network, drawn by its own script from the JSON report that it carries.
#pragma once

#include <string>

namespace tensorwire::cli {

/// @param json  of sim_json() or sweep_json().
[[nodiscard]] std::string sim_page(const std::string& title, const std::string& json);

}  // namespace tensorwire::cli
