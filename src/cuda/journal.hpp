// What the kernels of a rank write down of each operation, where no host code runs: a ring in the rank's scratch, which
// its peers can read too. Block 0 writes, for itself; the clock is the GPU's, in nanoseconds. It also tells the peers
// what it is in, so that ranks which do not ask for the same find that out.
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

/// What an operation is, as its kernel was told. dtype 0: bytes; op 0: nothing is reduced.
struct Operation {
  OperationKind kind = OperationKind::kNone;
  std::uint8_t dtype = 0;
  std::uint64_t bytes = 0;  ///< of this rank's input, or of its output where that is more
  std::uint8_t op = 0;
  std::uint32_t signature = 0;  ///< of what all ranks must ask for alike; 0: ranks need not be alike
};

/// Never 0. `more`: what else must be alike, such as a root.
[[nodiscard]] constexpr std::uint32_t signature_of(const Operation& operation, std::uint64_t more = 0) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::uint64_t part : {static_cast<std::uint64_t>(operation.kind), std::uint64_t{operation.dtype},
                                   std::uint64_t{operation.op}, operation.bytes, more}) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return static_cast<std::uint32_t>(hash >> 32) | 1;
}

struct JournalEntry {
  std::uint64_t number = 0;  ///< from 1, of this communicator on this rank; 0: never written
  std::uint64_t what = 0;    ///< packed_what()
  std::uint64_t bytes = 0;
  std::uint64_t begun_ns = 0;
  std::uint64_t ended_ns = 0;                ///< 0: not over
  std::array<std::uint32_t, 8> waited_ns{};  ///< for each peer; 0: less than some ten microseconds
};
/// Before the ring.
struct JournalHead {
  std::uint64_t operations = 0;   ///< that have begun
  std::uint64_t bytes = 0;        ///< of them
  std::uint64_t collectives = 0;  ///< of them that all ranks make alike: these have the same number on all ranks
  std::uint64_t signature = 0;    ///< of the last of these
};

/// What a rank has told another one of the last collective that it began: its number's low half, and the signature.
[[nodiscard]] constexpr std::uint64_t told_of(std::uint64_t collective, std::uint64_t signature) noexcept {
  return collective << 32 | signature;
}

/// `collective`: its number, 0 where it is none. The low half is kept.
[[nodiscard]] constexpr std::uint64_t packed_what(const Operation& operation, std::uint64_t collective) noexcept {
  return static_cast<std::uint64_t>(operation.kind) | std::uint64_t{operation.dtype} << 8 |
         std::uint64_t{operation.op} << 16 | collective << 32;
}
[[nodiscard]] constexpr OperationKind kind_of(const JournalEntry& entry) noexcept {
  return static_cast<OperationKind>(entry.what & 0xff);
}
[[nodiscard]] constexpr collective::DType dtype_of(const JournalEntry& entry) noexcept {
  return static_cast<collective::DType>(entry.what >> 8 & 0xff);
}
[[nodiscard]] constexpr collective::Op op_of(const JournalEntry& entry) noexcept {
  return static_cast<collective::Op>(entry.what >> 16 & 0xff);
}
[[nodiscard]] constexpr std::uint32_t collective_of(const JournalEntry& entry) noexcept {
  return static_cast<std::uint32_t>(entry.what >> 32);
}

}  // namespace tensorwire::cuda
