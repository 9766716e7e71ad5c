#include "collective/builders.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "collective/algorithms.hpp"
#include "collective/builder_parts.hpp"
#include "collective/signature.hpp"

namespace tensorwire::collective {

namespace {

[[noreturn]] void refuse(const Shape& shape, Algorithm algorithm, const std::string& why) {
  throw Error{fmt::format("build a {} {}", name_of(algorithm), name_of(shape.collective)), why};
}

void expect_sound(const Shape& shape, Algorithm algorithm) {
  const bool pair = shape.collective == Collective::kSendRecv;
  if (shape.count > kMostCount) refuse(shape, algorithm, fmt::format("{} elements are too many", shape.count));
  if ((pair || shape.collective == Collective::kBroadcast) && shape.root >= shape.ranks) {
    refuse(shape, algorithm, fmt::format("the root is rank {} of {}", shape.root, shape.ranks));
  }
  if (pair && (shape.peer >= shape.ranks || shape.peer == shape.root)) {
    refuse(shape, algorithm, fmt::format("rank {} sends to rank {} of {}", shape.root, shape.peer, shape.ranks));
  }
  if (shape.collective == Collective::kBarrier && shape.count != 0) {
    refuse(shape, algorithm, "a barrier has no elements");
  }
}

/// What a segment has room for: so many chunks, each of which may fill one area of a slot.
struct Room {
  std::uint64_t chunk_bytes;
  std::uint64_t chunks;
};

Room room_of(Algorithm algorithm, const Shape& shape, std::uint64_t slot_payload_bytes, const BuildOptions& options) {
  std::uint64_t areas = 1;
  std::uint64_t chunks = 1;
  switch (algorithm) {
    case Algorithm::kTwoShot:
      areas = 2;
      chunks = shape.ranks;
      break;
    case Algorithm::kTwoShotWindow:
      chunks = shape.ranks;
      break;
    case Algorithm::kRing:
      areas = std::max(1U, 2 * (shape.ranks - 1));
      chunks = shape.ranks;
      break;
    case Algorithm::kHierarchical:
      areas = 2;
      chunks = std::max(1U, options.group_ranks);
      break;
    case Algorithm::kWindow:
    case Algorithm::kTreeWindow:
      return {kWindowSegmentBytes, 1};
    case Algorithm::kOneShot:
    case Algorithm::kDirect:
    case Algorithm::kTree:
      break;
  }
  return {slot_payload_bytes / areas / kChunkAlignment * kChunkAlignment, chunks};
}

}  // namespace

Program build_program(const Shape& shape, Algorithm algorithm, std::uint32_t rank, const BuildOptions& options) {
  expect_sound(shape, algorithm);
  switch (shape.collective) {
    case Collective::kAllReduce:
      if (algorithm == Algorithm::kOneShot) return build_one_shot(shape, rank, options.source);
      if (algorithm == Algorithm::kTwoShot) return build_two_shot(shape, rank);
      if (algorithm == Algorithm::kTwoShotWindow) return build_two_shot_window(shape, rank);
      if (algorithm == Algorithm::kRing) return build_ring(shape, rank);
      if (algorithm == Algorithm::kHierarchical) return build_hierarchical(shape, rank, options.group_ranks);
      break;
    case Collective::kReduceScatter:
      if (algorithm == Algorithm::kDirect) return build_reduce_scatter(shape, rank, options.block_stride);
      break;
    case Collective::kAllGather:
      if (algorithm == Algorithm::kDirect) return build_all_gather(shape, rank, options.source, options.block_stride);
      if (algorithm == Algorithm::kWindow) {
        return build_all_gather_window(shape, rank, options.source, options.block_stride);
      }
      break;
    case Collective::kBroadcast:
      if (algorithm == Algorithm::kDirect) return build_broadcast(shape, rank, options.source);
      if (algorithm == Algorithm::kTree) return build_broadcast_tree(shape, rank, options.source);
      if (algorithm == Algorithm::kWindow) return build_broadcast_window(shape, rank, options.source);
      if (algorithm == Algorithm::kTreeWindow) return build_broadcast_tree_window(shape, rank, options.source);
      break;
    case Collective::kAllToAll:
      if (algorithm == Algorithm::kDirect) return build_all_to_all(shape, rank, options);
      if (algorithm == Algorithm::kWindow) return build_all_to_all_window(shape, rank, options);
      break;
    case Collective::kSendRecv:
      if (algorithm == Algorithm::kDirect) return build_send_recv(shape, rank, options.source);
      if (algorithm == Algorithm::kWindow) return build_send_recv_window(shape, rank);
      break;
    case Collective::kBarrier:
      if (algorithm == Algorithm::kDirect) return build_barrier(shape, rank);
      break;
  }
  refuse(shape, algorithm, "there is no such plan");
}

Plan build_plan(const Shape& shape, Algorithm algorithm, const BuildOptions& options) {
  Plan plan;
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
    plan.programs.push_back(build_program(shape, algorithm, rank, options));
  }
  return plan;
}

Program build_segment(const Shape& shape, Algorithm algorithm, std::uint32_t rank, const BuildOptions& options,
                      const Segmentation& cut, std::uint64_t segment) {
  Shape part = shape;
  part.count = segment + 1 == cut.segments ? cut.last_count : cut.segment_count;
  BuildOptions part_options = options;
  if (part_options.block_stride == 0) part_options.block_stride = shape.count;
  part_options.segment_first = segment * cut.segment_count;
  return build_program(part, algorithm, rank, part_options);
}

bool segments_are_alike(const BuildOptions& options) noexcept { return options.counts.empty(); }

Extent extent(const Shape& shape, std::uint32_t rank, const BuildOptions& options) {
  const std::uint64_t blocks = shape.count * shape.ranks;
  switch (shape.collective) {
    case Collective::kAllReduce:
    case Collective::kBroadcast:
      return {shape.count, shape.count};
    case Collective::kReduceScatter:
      return {blocks, shape.count};
    case Collective::kAllGather:
      return {shape.count, blocks};
    case Collective::kAllToAll: {
      if (options.counts.empty()) return {blocks, blocks};
      Extent sum;
      for (std::uint32_t r = 0; r < shape.ranks; ++r) {
        sum.input += options.counts[std::size_t{rank} * shape.ranks + r];
        sum.output += options.counts[std::size_t{r} * shape.ranks + rank];
      }
      return sum;
    }
    case Collective::kSendRecv:
      return {rank == shape.root ? shape.count : 0, rank == shape.peer ? shape.count : 0};
    case Collective::kBarrier:
      break;
  }
  return {};
}

Algorithm choose(const Shape& shape, const Thresholds& thresholds, Order order) noexcept {
  const bool into_windows = shape.bytes() > thresholds.slot_bytes;
  switch (shape.collective) {
    case Collective::kAllReduce:
      break;
    case Collective::kBroadcast:
      if (shape.ranks > thresholds.broadcast_ranks) return into_windows ? Algorithm::kTreeWindow : Algorithm::kTree;
      return into_windows ? Algorithm::kWindow : Algorithm::kDirect;
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return into_windows ? Algorithm::kWindow : Algorithm::kDirect;
    case Collective::kSendRecv:
      return shape.bytes() >= std::max<std::uint64_t>(1, thresholds.slot_bytes) ? Algorithm::kWindow
                                                                                : Algorithm::kDirect;
    case Collective::kReduceScatter:
    case Collective::kBarrier:
      return Algorithm::kDirect;
  }
  const std::uint64_t one_shot = shape.ranks <= 2 ? thresholds.one_shot_bytes_pair : thresholds.one_shot_bytes;
  if (shape.bytes() <= one_shot) return Algorithm::kOneShot;
  const bool in_parts = order == Order::kAny && may_add_in_parts(shape);
  if (shape.bytes() > thresholds.ring_bytes && in_parts) return Algorithm::kRing;
  return into_windows ? Algorithm::kTwoShotWindow : Algorithm::kTwoShot;
}

WriteSource choose_source(const Shape& shape, const Thresholds& thresholds, bool in_place) noexcept {
  // An all-to-all never copies to a send slot; in place, what comes must wait for what goes, however small.
  if (in_place && shape.collective == Collective::kAllToAll) return WriteSource::kInputInPlace;
  // What goes into windows needs no send slot, and has none.
  if (shape.bytes() <= std::min(thresholds.copy_in_bytes, thresholds.slot_bytes)) return WriteSource::kSendSlot;
  return in_place ? WriteSource::kInputInPlace : WriteSource::kInput;
}

bool keeps_order(Algorithm algorithm, Order order) noexcept {
  return order == Order::kAny || (algorithm != Algorithm::kRing && algorithm != Algorithm::kHierarchical);
}

std::uint32_t most_messages(std::uint32_t ranks) noexcept {
  const bool ring = ranks > 1 && ranks <= kMaxRingRanks;
  return std::max(2U, ring ? 2 * (ranks - 1) : 0);
}

std::uint64_t signature_count(const Shape& shape, const BuildOptions& options) noexcept {
  if (options.counts.empty()) return shape.count;
  std::uint64_t sum = options.counts.size();
  for (const std::uint64_t count : options.counts) sum = mix64(sum ^ count) + count;
  return sum & kMostCount;
}

Segmentation split(Algorithm algorithm, const Shape& shape, std::uint64_t slot_payload_bytes,
                   const BuildOptions& options) {
  const Room room = room_of(algorithm, shape, slot_payload_bytes, options);
  const std::uint64_t most = room.chunk_bytes * room.chunks;
  if (most == 0) {
    throw Error{fmt::format("cut a {} {} of {} bytes", name_of(algorithm), name_of(shape.collective), shape.bytes()),
                fmt::format("slots of {} bytes are too small", slot_payload_bytes), "Use larger slots"};
  }
  Segmentation result;
  result.segments = std::max<std::uint64_t>(1, (shape.bytes() + most - 1) / most);
  if (result.segments == 1) {
    result.segment_count = result.last_count = shape.count;
    return result;
  }
  const std::uint64_t even = (shape.bytes() + result.segments - 1) / result.segments;
  const std::uint64_t segment_bytes = std::min(most, round_up(even, kChunkAlignment * room.chunks));
  result.segment_count = segment_bytes / element_bytes(shape.dtype);
  result.segments = (shape.count + result.segment_count - 1) / result.segment_count;
  result.last_count = shape.count - (result.segments - 1) * result.segment_count;
  return result;
}

}  // namespace tensorwire::collective
