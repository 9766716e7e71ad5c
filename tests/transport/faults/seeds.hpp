// A program that runs seeds of a simulation: its options, its threads, and the report of what its seeds have done.
#pragma once

#include <cstdint>
#include <memory>

#include "run.hpp"

namespace tensorwire::transport::faults {

struct Program {
  const char* name;  ///< as one calls it
  std::unique_ptr<Workspace> (*make_workspace)();
  std::unique_ptr<Run> (*make_run)(std::uint64_t seed, Workspace& workspace);
};

/// main(): 0 when no seed violated a rule and everything that the workspaces tally was done.
int run_program(const Program& program, int count, char** arguments);

}  // namespace tensorwire::transport::faults
