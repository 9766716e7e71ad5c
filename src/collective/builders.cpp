#include "collective/builders.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "collective/algorithms.hpp"
#include "collective/builder_parts.hpp"

namespace tensorwire::collective {

namespace {

[[noreturn]] void refuse(const Shape& shape, Algorithm algorithm, const std::string& why) {
  throw Error{fmt::format("build a {} {}", name_of(algorithm), name_of(shape.collective)), why};
}

}  // namespace

Program build_program(const Shape& shape, Algorithm algorithm, std::uint32_t rank, const BuildOptions& options) {
  if (shape.dtype == DType::kInt32 || shape.op != Op::kSum) {
    refuse(shape, algorithm, fmt::format("{} of {} is not to be had", name_of(shape.op), name_of(shape.dtype)));
  }
  if (shape.collective == Collective::kAllReduce) {
    if (algorithm == Algorithm::kOneShot) return build_one_shot(shape, rank, options.source);
    if (algorithm == Algorithm::kTwoShot) return build_two_shot(shape, rank);
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
  if (shape.collective == Collective::kBroadcast) {
    return shape.ranks <= thresholds.broadcast_ranks ? Algorithm::kDirect : Algorithm::kTree;
  }
  if (shape.collective != Collective::kAllReduce) return Algorithm::kDirect;
  const std::uint64_t one_shot = shape.ranks <= 2 ? thresholds.one_shot_bytes_pair : thresholds.one_shot_bytes;
  if (shape.bytes() <= one_shot) return Algorithm::kOneShot;
  if (shape.bytes() > thresholds.ring_bytes && order == Order::kAny) return Algorithm::kRing;
  return shape.bytes() <= thresholds.slot_bytes ? Algorithm::kTwoShot : Algorithm::kTwoShotWindow;
}

WriteSource choose_source(const Shape& shape, const Thresholds& thresholds, bool in_place) noexcept {
  if (shape.bytes() <= thresholds.copy_in_bytes) return WriteSource::kSendSlot;
  return in_place ? WriteSource::kInputInPlace : WriteSource::kInput;
}

bool keeps_order(Algorithm algorithm, Order order) noexcept {
  return order == Order::kAny || (algorithm != Algorithm::kRing && algorithm != Algorithm::kHierarchical);
}

std::uint32_t most_messages(std::uint32_t /*ranks*/) noexcept { return 2; }

Segmentation split(Algorithm algorithm, const Shape& shape, std::uint64_t slot_payload_bytes,
                   const BuildOptions& /*options*/) {
  // A two-shot slot holds two chunks of at most half of it, and a segment has one chunk for each rank.
  const std::uint64_t chunks = algorithm == Algorithm::kTwoShot ? shape.ranks : 1;
  const std::uint64_t room = algorithm == Algorithm::kTwoShot ? slot_payload_bytes / 2 : slot_payload_bytes;
  const std::uint64_t most = room / kChunkAlignment * kChunkAlignment * chunks;
  if (most == 0) {
    throw Error{fmt::format("cut an all-reduce of {} bytes", shape.bytes()),
                fmt::format("slots of {} bytes are too small", slot_payload_bytes),
                fmt::format("Slots need at least {} bytes.", 2 * kChunkAlignment)};
  }
  Segmentation result;
  result.segments = std::max<std::uint64_t>(1, (shape.bytes() + most - 1) / most);
  if (result.segments == 1) {
    result.segment_count = result.last_count = shape.count;
    return result;
  }
  const std::uint64_t even = (shape.bytes() + result.segments - 1) / result.segments;
  const std::uint64_t segment_bytes = std::min(most, round_up(even, kChunkAlignment * chunks));
  result.segment_count = segment_bytes / element_bytes(shape.dtype);
  result.segments = (shape.count + result.segment_count - 1) / result.segment_count;
  result.last_count = shape.count - (result.segments - 1) * result.segment_count;
  return result;
}

}  // namespace tensorwire::collective
