// An all-reduce sweep by NCCL, where its library and a GPU for each rank are: the yardstick beside the library's own.
// Runs as a process of its own on every rank, with the environment of a launcher.
#pragma once

#include <cstddef>

namespace tensorwire::cli {

/// Prints, at rank 0, {results: [{bytes, p50_us, algbw_gb_s, wrong}], version} or {why}. @return the exit status.
/// @throws Error
int print_nccl_sweep(std::size_t max_bytes);

}  // namespace tensorwire::cli
