// What the kernels of a rank write down of each operation, where no host code runs: a ring in the rank's scratch, which
// its peers can read too. Block 0 writes, for itself; the clock is the GPU's, in nanoseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "collective/types.hpp"

namespace tensorwire::cuda {

inline constexpr std::uint32_t kJournalEntries = 1024;

enum class OperationKind : std::uint8_t {
  kNone = 0,
  kAllReduce = 1,
  kReduceScatter = 2,
  kAllGather = 3,
  kBroadcast = 4,
  kAllToAll = 5,
  kMessages = 6,
  kBarrier = 7,
  kAddNorm = 8,
};
[[nodiscard]] constexpr std::string_view name_of(OperationKind kind) noexcept {
  constexpr std::array<std::string_view, 9> kNames{"nothing",    "all-reduce", "reduce-scatter",
                                                   "all-gather", "broadcast",  "all-to-all",
                                                   "messages",   "barrier",    "all-reduce + residual + RMSNorm"};
  const auto at = static_cast<std::size_t>(kind);
  return at < kNames.size() ? kNames[at] : "unknown operation";
}

/// What an operation is, as its kernel was told. dtype 0: bytes.
struct Operation {
  OperationKind kind = OperationKind::kNone;
  std::uint8_t dtype = 0;
  std::uint64_t bytes = 0;  ///< of this rank's input, or of its output where that is more
};

struct JournalEntry {
  std::uint64_t number = 0;  ///< from 1, of this communicator on this rank; 0: never written
  std::uint64_t kind = 0;    ///< an OperationKind, and the dtype above its 8 bits
  std::uint64_t bytes = 0;
  std::uint64_t begun_ns = 0;
  std::uint64_t ended_ns = 0;                ///< 0: not over
  std::array<std::uint32_t, 8> waited_ns{};  ///< for each peer; 0: less than some ten microseconds
};
/// Before the ring.
struct JournalHead {
  std::uint64_t operations = 0;  ///< that have begun
  std::uint64_t bytes = 0;       ///< of them
};

}  // namespace tensorwire::cuda
