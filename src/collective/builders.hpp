// Building the programs of any collective, cutting messages into segments, and choosing an algorithm. Each algorithm
// has a file of its own (algorithms.hpp); here they are chosen by name. Pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "collective/plan.hpp"

namespace tensorwire::collective {

/// Where writes are sourced from that could be sourced from a copy as well: a rank's own affair, peers need not agree.
enum class WriteSource : std::uint8_t {
  kSendSlot,      ///< input is copied to a send slot: complete without waiting for acknowledgements
  kInput,         ///< no copy; complete only after every write's own send completion. Output apart from the input
  kInputInPlace,  ///< likewise, and the output, which is the input, is not touched before those completions
};

/// Beside the shape, what a program depends on.
struct BuildOptions {
  WriteSource source = WriteSource::kSendSlot;
  std::uint32_t group_ranks = 1;  ///< hierarchical: ranks [k * group_ranks, (k + 1) * group_ranks) are a group
  /// Reduce-scatter, all-gather, all-to-all: elements from the block of one rank to the next in the user's memory. 0:
  /// the count of the shape. More where the shape is a segment of the operation.
  std::uint64_t block_stride = 0;
  /// All-to-all: elements that rank i sends to rank j at [i * ranks + j], blocks lying one behind the other; the count
  /// of the shape is then the largest. Empty: the count of the shape for every pair. Not copied; all ranks must have
  /// the same.
  std::span<const std::uint64_t> counts;
  /// All-to-all with `counts`: elements of each block that earlier segments have carried.
  std::uint64_t segment_first = 0;
};

/// What rank `rank` does. @throws Error: a rank or shape that cannot be, an algorithm that does not do the collective.
[[nodiscard]] Program build_program(const Shape& shape, Algorithm algorithm, std::uint32_t rank,
                                    const BuildOptions& options = {});
/// The programs of all ranks. @throws Error, as above.
[[nodiscard]] Plan build_plan(const Shape& shape, Algorithm algorithm, const BuildOptions& options = {});

/// What goes into the signature as the count: that of the shape, or where the counts differ a checksum of them all.
[[nodiscard]] std::uint64_t signature_count(const Shape& shape, const BuildOptions& options) noexcept;

/// How many elements the user's tensors have on one rank.
struct Extent {
  std::uint64_t input = 0;
  std::uint64_t output = 0;
};
/// Of a whole operation (not of a segment): 0 for what a rank does not have, as the input of a receiver.
[[nodiscard]] Extent extent(const Shape& shape, std::uint32_t rank, const BuildOptions& options = {});

/// A message cut into sequence numbers: all segments have `segment_count` elements (of each block, where the tensor is
/// made of blocks) but the last. Segment s begins s * segment_count elements into the input and the output.
struct Segmentation {
  std::uint64_t segments = 1;  ///< at least 1: an empty message still compares signatures
  std::uint64_t segment_count = 0;
  std::uint64_t last_count = 0;
};

/// Cuts a message so that each segment fits slots of `slot_payload_bytes`, as evenly as the alignment allows.
/// @throws Error when a slot is too small for anything.
[[nodiscard]] Segmentation split(Algorithm algorithm, const Shape& shape, std::uint64_t slot_payload_bytes,
                                 const BuildOptions& options = {});
/// The program of one segment of the operation `shape`.
[[nodiscard]] Program build_segment(const Shape& shape, Algorithm algorithm, std::uint32_t rank,
                                    const BuildOptions& options, const Segmentation& cut, std::uint64_t segment);
/// Whether all segments but the last have the same program.
[[nodiscard]] bool segments_are_alike(const BuildOptions& options) noexcept;

/// Messages that one sequence number can carry from a rank to a peer in any plan for so many ranks: what receive
/// queues must be deep enough for.
[[nodiscard]] std::uint32_t most_messages(std::uint32_t ranks) noexcept;

/// What the caller demands of the order of summation.
enum class Order : std::uint8_t {
  kAny,             ///< fixed for each shape and algorithm; the same on all ranks, in every run
  kRank,            ///< ((x0 + x1) + x2) + ... in fp32, rounded once
  kBatchInvariant,  ///< the sum of an element does not depend on where it lies, nor on how many there are
};

/// Where one way of doing it becomes better than another, in bytes of the tensor. Measured with two ranks on one host.
struct Thresholds {
  static constexpr std::uint64_t kAlways = ~std::uint64_t{0};

  /// n > 2: the largest tensor in one shot, which sends n/2 times the bytes of two-shot.
  std::uint64_t one_shot_bytes = 16 * 1024;
  /// n = 2: one-shot sends the same bytes in one hop instead of two, but each rank reads the peer's whole tensor and
  /// its own, not half of each. With cold caches that costs more than the hop from here on.
  std::uint64_t one_shot_bytes_pair = 64 * 1024;
  /// The largest tensor that is copied to a send slot. Beyond, waiting for the acknowledgement is cheaper.
  std::uint64_t copy_in_bytes = 8 * 1024;
  /// The largest tensor, or block of an all-gather or all-to-all, whose results go through slots; larger ones are
  /// written straight into the peers' outputs. A message between two ranks is from this size on.
  std::uint64_t slot_bytes = kAlways;
  /// The largest tensor that is not sent around a ring, where the order of summation may be any.
  std::uint64_t ring_bytes = kAlways;
  /// The most ranks that a root writes to by itself.
  std::uint32_t broadcast_ranks = 8;

  bool operator==(const Thresholds&) const = default;
};

[[nodiscard]] Algorithm choose(const Shape& shape, const Thresholds& thresholds, Order order = Order::kAny) noexcept;
[[nodiscard]] WriteSource choose_source(const Shape& shape, const Thresholds& thresholds, bool in_place) noexcept;
/// Whether the algorithm sums as demanded.
[[nodiscard]] bool keeps_order(Algorithm algorithm, Order order) noexcept;

}  // namespace tensorwire::collective
