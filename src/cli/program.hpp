// The `tensorwire` program: its sub-commands register here, one file each.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tensorwire::cli {

/// The words after the program's name, as given: a benchmark that starts its ranks runs itself with them.
[[nodiscard]] const std::vector<std::string>& program_arguments() noexcept;

/// Each adds its command to `parent`; the command's callback sets `status`, the exit status.
void add_bench_decode(CLI::App& parent, int& status);
void add_bench_allreduce(CLI::App& parent, int& status);
void add_plan(CLI::App& parent, int& status);
void add_soft(CLI::App& parent, int& status);
void add_tune(CLI::App& parent, int& status);
void add_env(CLI::App& parent, int& status);
void add_trace(CLI::App& parent, int& status);

}  // namespace tensorwire::cli
