// Runs programs of the system: without a shell, for a bounded time; or detached from this program, to outlive it. They
// get no terminal, none of this program's environment, and the folders of administrators' tools as PATH.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "host/tree/tree.hpp"

namespace tensorwire::host {

/// Of a question. What changes a NIC may take longer.
inline constexpr Ps kQuestionBound = 1 * kSecond;

/// What it prints. Looked for in the folders that administrators' tools are in, whatever PATH says. Not there: ENOENT;
/// longer than `bound`: ETIMEDOUT, and it is killed with all that it started; a status other than 0: EIO with the first
/// line it printed.
[[nodiscard]] Answer run_program(const std::vector<std::string>& words, Ps bound = kQuestionBound);

/// What `body` appends to its text, in a process of its own: it may hang or crash. It returns an errno.
[[nodiscard]] Answer run_apart(int (*body)(std::string& text), Ps bound = kQuestionBound);

/// A shell script in a session of its own, which outlives this process and its terminal.
/// @param lifeline  the script reads it as descriptor 3
/// @return errno; 0: it runs
[[nodiscard]] int run_detached(const std::string& script, const UniqueFd& lifeline);

/// The first line of a file of any length that holds `text`; an empty answer when there is none.
[[nodiscard]] Answer find_line(const std::string& path, std::string_view text);

}  // namespace tensorwire::host
