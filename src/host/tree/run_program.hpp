// Runs a program of the system without a shell and takes what it prints, for at most a second.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "host/tree/tree.hpp"

namespace tensorwire::host {

/// Looked for in the folders that administrators' tools are in, whatever PATH says. Not there: ENOENT; longer than a
/// second: ETIMEDOUT, and it is killed; a status other than 0: EIO with the first line it printed.
[[nodiscard]] Answer run_program(const std::vector<std::string>& words);

/// The first line of a file of any length that holds `text`; an empty answer when there is none.
[[nodiscard]] Answer find_line(const std::string& path, std::string_view text);

}  // namespace tensorwire::host
