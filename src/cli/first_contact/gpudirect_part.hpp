// GPUDirect as it is on this host, GPU by GPU and NIC by NIC: what registering memory of the GPU says, which way is
// taken, and whether bytes that the NIC writes are then in the GPU. Runs as a process of its own, which prints a line
// of JSON for each pair: should one of them kill it, the lines before are there.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/mesh/rails.hpp"

namespace tensorwire::cli {

/// @return the exit status
int print_gpudirect(const RailWish& wish);

}  // namespace tensorwire::cli
