// Starts the ranks of a benchmark as processes of this machine, each a fresh run of this program with the environment
// of a launcher (RANK, WORLD_SIZE, ...), and waits for them with a bound.
#pragma once

#include <string>
#include <vector>

namespace tensorwire::cli {

/// Runs `arguments` (without the program's name) once per rank. Only rank 0's standard output is kept; every rank's
/// standard error is. When one rank fails, the others get a few seconds to say why and end by themselves, then they are
/// killed.
/// @return 0 when every rank ended with 0, else the first failure's exit status (128 + signal for a killed rank).
/// @throws Error when a process cannot be started.
int run_local_ranks(int ranks, const std::vector<std::string>& arguments);

}  // namespace tensorwire::cli
