// The bare traffic of a plan: how many bytes each rank sends to each peer in each phase, with nothing else of it. The
// floors (bare UDP, bare TCP) move exactly these bytes, so that a path can be compared with what the kernel alone
// costs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/plan.hpp"

namespace tensorwire::cli {

struct ExchangePhase {
  std::vector<std::uint64_t> send_bytes;     ///< by peer rank; 0: no message
  std::vector<std::uint64_t> receive_bytes;  ///< by peer rank
};
using ExchangePattern = std::vector<ExchangePhase>;

/// The tensors that a bare exchange sends from and receives into: the same memory, as cold or warm, that an all-reduce
/// would touch. What of a message is longer than they are wraps around.
struct ExchangeBuffers {
  std::span<const std::byte> in;
  std::span<std::byte> out;
};

/// Phase k of the pattern is message k of every pair of the plan, slot header included where it travels.
[[nodiscard]] ExchangePattern exchange_pattern(const collective::Plan& plan, std::uint32_t rank);

}  // namespace tensorwire::cli
