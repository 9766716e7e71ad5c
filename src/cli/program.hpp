// The `tensorwire` program: its sub-commands register here, one file each.
#pragma once

#include <string>
#include <vector>

#include "cli/command.hpp"

namespace tensorwire::cli {

/// Reads the command line and runs the command that it names. @return the exit status
int run_program(int argc, char** argv);

/// The words after the program's name, as given: a benchmark that starts its ranks runs itself with them.
[[nodiscard]] const std::vector<std::string>& program_arguments() noexcept;

/// Each adds its command to `parent`; the command's callback sets `status`, the exit status.
void add_bench_decode(Command& parent, int& status);
void add_bench_allreduce(Command& parent, int& status);
void add_plan(Command& parent, int& status);
void add_soft(Command& parent, int& status);
void add_tune(Command& parent, int& status);
void add_env(Command& parent, int& status);
void add_trace(Command& parent, int& status);
void add_doctor(Command& parent, int& status);
void add_configure(Command& parent, int& status);
void add_nccl_env(Command& parent, int& status);
void add_sim(Command& parent, int& status);
void add_first_contact(Command& parent, int& status);

}  // namespace tensorwire::cli
