// A kernel that answers the host: for the bench of round trips. (Plain values and a launch: no CUDA headers needed.)
#pragma once

#include <cstdint>

#include "cuda/kernels.hpp"

namespace tensorwire::bench {

/// Two words in pinned memory, a cache line each.
struct Table {
  alignas(64) std::uint64_t to_gpu;
  alignas(64) std::uint64_t to_host;
};

/// One thread: `rounds` times it tells the host the next number and waits for it to come back.
int launch_ping(Table* table, std::uint64_t rounds, cuda::Stream stream) noexcept;

}  // namespace tensorwire::bench
