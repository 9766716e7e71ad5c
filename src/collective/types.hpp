// Collectives, element types, reduction operators and algorithms, and their names. Plain values; no state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tensorwire::collective {

/// The numbers go on the wire (signature.hpp), four bits each: never renumber.
enum class Collective : std::uint8_t {
  kAllReduce = 1,
  kReduceScatter = 2,
  kAllGather = 3,
  kBroadcast = 4,
  kAllToAll = 5,
  kSendRecv = 6,
  kBarrier = 7,
};
enum class DType : std::uint8_t { kFloat32 = 1, kFloat16 = 2, kBfloat16 = 3, kInt32 = 4 };
enum class Op : std::uint8_t { kSum = 1, kMax = 2, kAverage = 3 };
enum class Algorithm : std::uint8_t {
  kOneShot = 1,        ///< all-reduce: every rank's tensor to every other
  kTwoShot = 2,        ///< all-reduce: reduce-scatter, then all-gather, each in one hop
  kRing = 3,           ///< all-reduce: the same around a ring, one neighbour at a time
  kHierarchical = 4,   ///< all-reduce: inside groups of ranks, then across them, then inside again
  kDirect = 5,         ///< the other collectives: each block straight from its owner to who needs it
  kTree = 6,           ///< broadcast: along a binomial tree
  kTwoShotWindow = 7,  ///< all-reduce: two-shot, its second half straight into the peers' outputs
  kWindow = 8,         ///< as direct, straight into the outputs of who needs it
  kTreeWindow = 9,     ///< as tree, likewise
};

inline constexpr std::array kCollectives{Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                                         Collective::kBroadcast, Collective::kAllToAll,      Collective::kSendRecv,
                                         Collective::kBarrier};
inline constexpr std::array kDTypes{DType::kFloat32, DType::kFloat16, DType::kBfloat16, DType::kInt32};
inline constexpr std::array kOps{Op::kSum, Op::kMax, Op::kAverage};
inline constexpr std::array kAlgorithms{Algorithm::kOneShot, Algorithm::kTwoShot,      Algorithm::kTwoShotWindow,
                                        Algorithm::kRing,    Algorithm::kHierarchical, Algorithm::kDirect,
                                        Algorithm::kTree,    Algorithm::kWindow,       Algorithm::kTreeWindow};

/// Whether a caller's number is one of these.
[[nodiscard]] constexpr bool known(DType dtype) noexcept { return dtype >= kDTypes.front() && dtype <= kDTypes.back(); }
[[nodiscard]] constexpr bool known(Op op) noexcept { return op >= kOps.front() && op <= kOps.back(); }

[[nodiscard]] constexpr std::size_t element_bytes(DType dtype) noexcept {
  return dtype == DType::kFloat32 || dtype == DType::kInt32 ? 4 : 2;
}

[[nodiscard]] constexpr std::string_view name_of(Collective collective) noexcept {
  switch (collective) {
    case Collective::kAllReduce:
      return "all-reduce";
    case Collective::kReduceScatter:
      return "reduce-scatter";
    case Collective::kAllGather:
      return "all-gather";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kAllToAll:
      return "all-to-all";
    case Collective::kSendRecv:
      return "send/recv";
    case Collective::kBarrier:
      return "barrier";
  }
  return "unknown collective";
}

[[nodiscard]] constexpr std::string_view name_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat32:
      return "fp32";
    case DType::kFloat16:
      return "fp16";
    case DType::kBfloat16:
      return "bf16";
    case DType::kInt32:
      return "int32";
  }
  return "unknown type";
}

[[nodiscard]] constexpr std::string_view name_of(Op op) noexcept {
  switch (op) {
    case Op::kSum:
      return "sum";
    case Op::kMax:
      return "max";
    case Op::kAverage:
      return "average";
  }
  return "unknown operator";
}

[[nodiscard]] constexpr std::string_view name_of(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::kOneShot:
      return "one-shot";
    case Algorithm::kTwoShot:
      return "two-shot";
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kHierarchical:
      return "hierarchical";
    case Algorithm::kDirect:
      return "direct";
    case Algorithm::kTree:
      return "tree";
    case Algorithm::kTwoShotWindow:
      return "two-shot into windows";
    case Algorithm::kWindow:
      return "into windows";
    case Algorithm::kTreeWindow:
      return "tree into windows";
  }
  return "unknown algorithm";
}

}  // namespace tensorwire::collective
