// Builders of all-reduce programs, and the choice between them. Both sum in rank order, so that all ranks hold the same
// bits in every run. Pure functions.
#pragma once

#include <cstdint>

#include "collective/plan.hpp"

namespace tensorwire::collective {

/// Where one-shot writes are sourced from: a rank's own affair, peers need not agree.
enum class OneShotSource : std::uint8_t {
  kSendSlot,      ///< input is copied to a send slot: complete without waiting for acknowledgements
  kInput,         ///< no copy; complete only after every write's own send completion. Output apart from the input
  kInputInPlace,  ///< likewise, and the output, which is the input, is not touched before those completions
};

/// Every rank writes its whole tensor to every other: one hop, (n-1) x bytes sent by each rank.
/// @throws Error on a bad shape or rank.
[[nodiscard]] Program build_one_shot(const Shape& shape, std::uint32_t rank,
                                     OneShotSource source = OneShotSource::kSendSlot);

/// Reduce-scatter, then all-gather: two hops, 2 x (n-1)/n x bytes sent by each rank.
/// @throws Error on a bad shape or rank.
[[nodiscard]] Program build_two_shot(const Shape& shape, std::uint32_t rank);

/// The programs of all ranks.
[[nodiscard]] Plan build_plan(Algorithm algorithm, const Shape& shape);

/// Where one way of doing it becomes better than another, in bytes of the tensor. Measured with two ranks on one host.
struct Thresholds {
  static constexpr std::uint64_t kAlways = ~std::uint64_t{0};

  /// n > 2: the largest tensor in one shot, which sends n/2 times the bytes of two-shot.
  std::uint64_t one_shot_bytes = 16 * 1024;
  /// n = 2: one-shot sends the same bytes in one hop instead of two, but each rank reads the peer's whole tensor and
  /// its own, not half of each. With cold caches that costs more than the hop from here on.
  std::uint64_t one_shot_bytes_pair = 64 * 1024;
  /// One-shot: the largest tensor that is copied to a send slot. Beyond, waiting for the acknowledgement is cheaper.
  std::uint64_t copy_in_bytes = 8 * 1024;
};

[[nodiscard]] Algorithm choose(const Shape& shape, const Thresholds& thresholds) noexcept;
[[nodiscard]] OneShotSource choose_source(const Shape& shape, const Thresholds& thresholds, bool in_place) noexcept;

/// A message cut into sequence numbers: all segments have `segment_count` elements but the last.
struct Segmentation {
  std::uint64_t segments = 1;  ///< at least 1: an empty message still compares signatures
  std::uint64_t segment_count = 0;
  std::uint64_t last_count = 0;
};

/// Cuts a message so that each segment fits slots of `slot_payload_bytes`, as evenly as the alignment allows.
/// @throws Error when a slot is too small for anything.
[[nodiscard]] Segmentation split(Algorithm algorithm, const Shape& shape, std::uint64_t slot_payload_bytes);

}  // namespace tensorwire::collective
