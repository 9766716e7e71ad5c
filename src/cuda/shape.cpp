#include "cuda/shape.hpp"

#include <algorithm>

namespace tensorwire::cuda {

namespace {

constexpr std::uint32_t kWarp = 32;
constexpr std::uint32_t kMostThreads = 512;
constexpr std::uint32_t kMostThreadsOfTwoCrews = 1024;  // slots of two ranks
/// Kernels count a lane's units with 32 bits.
constexpr std::size_t kMostLaneUnits = 1U << 30;

/// One-shot sends what each rank has to all others, so the more ranks, the sooner two-shot is better: bytes to all
/// peers together. Lines carry twice as many.
constexpr std::size_t kMostByWordsOfTwo = 16U << 20;
constexpr std::size_t kMostByWords = 2U << 20;
constexpr std::size_t kMostByLines = 1U << 20;
/// Across PCIe a few lanes fill the link, and threads that look in vain take it from what they wait for.
constexpr std::uint32_t kOneShotLanesInHost = 8;
constexpr std::uint32_t kMostOneShotLanesInHost = 16;
constexpr std::size_t kOneShotLaneBytesInHost = 32768;  // where more than those eight would be used
constexpr std::size_t kSlotLaneBytesInHost = 16384;
constexpr std::uint32_t kMostSlotLanesInHost = 32;

/// So much of a tensor for each lane, before another lane is worth its start.
constexpr std::size_t kOneShotLaneBytes = 1024;
constexpr std::size_t kSlotLaneBytes = 8192;
constexpr std::size_t kLeastPieceBytes = 8192;
/// A lane's share in about so many pieces, so that sending one and summing another overlap.
constexpr std::size_t kPiecesOfLane = 2;

std::size_t rounded_up(std::size_t value, std::size_t step) { return (value + step - 1) / step * step; }

std::uint32_t lanes_for(std::size_t bytes, std::size_t lane_bytes, const Layout& layout) {
  return static_cast<std::uint32_t>(std::clamp<std::size_t>((bytes + lane_bytes - 1) / lane_bytes, 1, layout.lanes));
}

Shape one_shot(Protocol protocol, std::size_t bytes, const Layout& layout) {
  Shape shape{protocol, lanes_for(bytes, kOneShotLaneBytes, layout), kMostThreads, 0};
  if (layout.in_host) {
    shape.lanes = std::min(shape.lanes, std::clamp(lanes_for(bytes, kOneShotLaneBytesInHost, layout),
                                                   kOneShotLanesInHost, kMostOneShotLanesInHost));
  }
  const std::size_t units = rounded_up(lane_units(bytes, shape.lanes), kWarp);
  shape.threads = static_cast<std::uint32_t>(std::clamp<std::size_t>(units, kWarp, kMostThreads));
  return shape;
}

Shape slots(std::size_t bytes, std::size_t lane_bytes, std::uint32_t most_lanes, std::size_t pieces_of_lane,
            const Layout& layout) {
  const std::size_t part = layout.ranks == 2 ? bytes : (bytes + layout.ranks - 1) / layout.ranks;
  const std::uint32_t lanes = std::min(lanes_for(part, lane_bytes, layout), most_lanes);
  const std::size_t piece = rounded_up(part / lanes / pieces_of_lane, kUnitBytes);
  return {Protocol::kSlots, lanes, layout.ranks == 2 ? kMostThreadsOfTwoCrews : kMostThreads,
          static_cast<std::uint32_t>(std::clamp<std::size_t>(
              piece, std::min<std::size_t>(kLeastPieceBytes, layout.slot_bytes), layout.slot_bytes))};
}

}  // namespace

std::string_view name_of(Protocol protocol) noexcept {
  switch (protocol) {
    case Protocol::kLines:
      return "lines";
    case Protocol::kWords:
      return "words";
    case Protocol::kSlots:
      return "slots";
  }
  return "unknown protocol";
}

std::size_t lane_units(std::size_t bytes, std::uint32_t lanes) noexcept {
  const std::size_t units = (bytes + kUnitBytes - 1) / kUnitBytes;
  return (units + lanes - 1) / lanes;
}

bool fits(const Shape& shape, std::size_t bytes, collective::DType dtype, const Layout& layout) noexcept {
  if (shape.lanes == 0 || shape.lanes > layout.lanes) return false;
  const bool crews = shape.protocol == Protocol::kSlots && layout.ranks == 2;
  if (shape.threads == 0 || shape.threads > (crews ? kMostThreadsOfTwoCrews : kMostThreads)) return false;
  if (shape.threads % (crews ? 2 * kWarp : kWarp) != 0) return false;
  if (lane_units(bytes, shape.lanes) > kMostLaneUnits) return false;
  switch (shape.protocol) {
    case Protocol::kLines:
      return lane_units(bytes, shape.lanes) * (kUnitBytes / kLineData) <= layout.lines;
    case Protocol::kWords:
      return dtype != collective::DType::kInt32;
    case Protocol::kSlots:
      return shape.piece_bytes > 0 && shape.piece_bytes % kUnitBytes == 0 && shape.piece_bytes <= layout.slot_bytes;
  }
  return false;
}

Shape choose_shape(std::size_t bytes, collective::DType dtype, const Layout& layout) noexcept {
  const std::size_t to_peers = bytes * (layout.ranks - 1);
  const Shape words = one_shot(Protocol::kWords, bytes, layout);
  const std::size_t most = layout.ranks == 2 && !layout.in_host ? kMostByWordsOfTwo : kMostByWords;
  if (to_peers <= most && fits(words, bytes, dtype, layout)) return words;
  const Shape lines = one_shot(Protocol::kLines, bytes, layout);
  if (to_peers <= kMostByLines && fits(lines, bytes, dtype, layout)) return lines;

  return layout.in_host ? slots(bytes, kSlotLaneBytesInHost, kMostSlotLanesInHost, 1, layout)
                        : slots(bytes, kSlotLaneBytes, layout.lanes, kPiecesOfLane, layout);
}

MessageShape choose_message_shape(std::size_t bytes, const Layout& layout) noexcept {
  constexpr std::size_t kChannelData = std::size_t{kChannelLines} * kLineData;
  const auto channels_for = [&](std::size_t each) {
    return static_cast<std::uint32_t>(std::clamp<std::size_t>((bytes + each - 1) / each, 1, layout.channels()));
  };
  const std::uint32_t of_lines = channels_for(kOneShotLaneBytes);
  if (lane_units(bytes, of_lines) * kUnitBytes <= kChannelData) return {of_lines, 0};
  const std::uint32_t of_slots = channels_for(kSlotLaneBytes);
  const std::size_t piece = rounded_up(bytes / of_slots / kPiecesOfLane, kUnitBytes);
  return {of_slots, static_cast<std::uint32_t>(std::clamp<std::size_t>(
                        piece, std::min<std::size_t>(kLeastPieceBytes, layout.slot_bytes), layout.slot_bytes))};
}

RowShape choose_row_shape(std::size_t rows, std::size_t row_units, const Layout& layout) noexcept {
  constexpr std::uint32_t kMostBlocks = 8;        // what every GPU with clusters can do
  constexpr std::size_t kHeld = 4;                // units that a thread keeps in registers
  constexpr std::size_t kLeastUnits = 2 * kWarp;  // of a block
  if (rows == 0 || row_units == 0) return {};
  RowShape shape{0, 0, 1};
  const auto divides = [&](std::uint32_t split) { return split <= layout.lanes && row_units % split == 0; };
  // Few rows are split further, so that more multiprocessors send.
  while (shape.split < kMostBlocks && divides(2 * shape.split) && row_units / (2 * shape.split) >= kLeastUnits &&
         (rows * 2 * shape.split <= layout.lanes || row_units / shape.split > kMostThreads * kHeld)) {
    shape.split *= 2;
  }
  const std::size_t units = row_units / shape.split;
  if (units > kMostThreads * kHeld || units * kUnitBytes > layout.round_bytes) return {};
  const std::size_t clusters = std::min<std::size_t>(rows, layout.lanes / shape.split);
  shape.lanes = static_cast<std::uint32_t>(clusters) * shape.split;
  shape.threads = static_cast<std::uint32_t>(std::min<std::size_t>(rounded_up(units, kWarp), kMostThreads));
  return shape;
}

}  // namespace tensorwire::cuda
