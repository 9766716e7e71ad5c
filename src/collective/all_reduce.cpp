#include "collective/all_reduce.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace tensorwire::collective {

namespace {

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) noexcept { return (value + to - 1) / to * to; }

/// A tensor cut into one chunk per rank, each beginning at a multiple of kChunkAlignment; the last may be short or
/// empty.
class Chunks {
 public:
  explicit Chunks(const Shape& shape) noexcept
      : total_(shape.bytes()), chunk_(round_up((total_ + shape.ranks - 1) / shape.ranks, kChunkAlignment)) {}

  [[nodiscard]] std::uint64_t offset(std::uint32_t rank) const noexcept { return std::min(total_, rank * chunk_); }
  [[nodiscard]] std::uint64_t bytes(std::uint32_t rank) const noexcept { return offset(rank + 1) - offset(rank); }
  [[nodiscard]] std::uint64_t stride() const noexcept { return chunk_; }

 private:
  std::uint64_t total_;
  std::uint64_t chunk_;
};

/// The peers of `rank`, beginning with its successor: destinations rotate, so that nobody is everyone's first.
std::vector<std::uint32_t> rotated_peers(std::uint32_t ranks, std::uint32_t rank) {
  std::vector<std::uint32_t> peers;
  for (std::uint32_t k = 1; k < ranks; ++k) peers.push_back((rank + k) % ranks);
  return peers;
}

/// Every rank's contribution, in rank order: the peers' from their slots at `slot_offset`, one's own from the input.
std::vector<Location> contributions(std::uint32_t ranks, std::uint32_t rank, std::uint64_t input_offset) {
  std::vector<Location> operands;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    operands.push_back(r == rank ? Location{Place::kInput, 0, input_offset}
                                 : Location{Place::kPeerSlot, static_cast<std::uint16_t>(r), 0});
  }
  return operands;
}

Program build_alone(Algorithm algorithm, const Shape& shape) {
  ProgramBuilder builder{algorithm, shape, 0};
  if (shape.count != 0) builder.copy({Place::kInput, 0, 0}, {Place::kOutput, 0, 0}, shape.bytes());
  return builder.finish();
}

}  // namespace

// Bytes that the CPU touches for a tensor of S bytes (r = read, w = write), the transport's own aside:
//   kSendSlot: copy in S r + S w; reduce n S r + S w         n = 2: 5 S
//   kInput:    reduce n S r + S w                            n = 2: 3 S, but the end waits for acknowledgements
Program build_one_shot(const Shape& shape, std::uint32_t rank, OneShotSource source) {
  if (shape.ranks == 1 && rank == 0) return build_alone(Algorithm::kOneShot, shape);
  ProgramBuilder builder{Algorithm::kOneShot, shape, rank};
  const std::uint64_t bytes = shape.bytes();
  const std::vector<std::uint32_t> peers = rotated_peers(shape.ranks, rank);
  const bool from_input = source != OneShotSource::kSendSlot;

  std::uint16_t copied = kNoStep;
  if (!from_input && bytes != 0) copied = builder.copy({Place::kInput, 0, 0}, {Place::kSendSlot, 0, 0}, bytes);
  const Location from{from_input ? Place::kInput : Place::kSendSlot, 0, 0};

  std::vector<std::uint16_t> before_output;
  for (const std::uint32_t peer : peers) {
    const std::uint16_t written = builder.write(peer, 0, from, 0, bytes, {copied});
    if (!from_input || bytes == 0) continue;
    const std::uint16_t sent = builder.sent(written);
    // In place the sum overwrites the source, and a peer's arrival does not say that the peer has ours.
    if (source == OneShotSource::kInputInPlace) before_output.push_back(sent);
  }
  std::vector<std::uint16_t> arrivals;
  for (const std::uint32_t peer : peers) arrivals.push_back(builder.arrival(peer, 0));
  std::uint16_t last_read = builder.match(arrivals);
  if (bytes != 0) {
    before_output.push_back(last_read);
    last_read = builder.reduce(contributions(shape.ranks, rank, 0), {Place::kOutput, 0, 0}, {}, bytes, before_output);
  }
  for (const std::uint32_t peer : peers) builder.release(peer, {last_read});
  return builder.finish();
}

// Bytes that the CPU touches for a tensor of S bytes, the transport's own aside:
//   reduce S r + 2 S/n w (user output and send slot); copy out (n-1)/n S r + (n-1)/n S w        n = 2: 3 S
// The slot of a peer holds two areas: its part of our chunk, then (one stride on) its finished chunk.
Program build_two_shot(const Shape& shape, std::uint32_t rank) {
  if (shape.ranks == 1 && rank == 0) return build_alone(Algorithm::kTwoShot, shape);
  ProgramBuilder builder{Algorithm::kTwoShot, shape, rank};
  const Chunks chunks{shape};
  const std::vector<std::uint32_t> peers = rotated_peers(shape.ranks, rank);

  // Reduce-scatter, straight from user memory: the operation must not end while these could still be sent again. An
  // empty chunk still brings its signature.
  for (const std::uint32_t peer : peers) {
    const std::uint16_t written =
        builder.write(peer, 0, {Place::kInput, 0, chunks.offset(peer)}, 0, chunks.bytes(peer));
    if (chunks.bytes(peer) != 0) builder.sent(written);
  }
  std::vector<std::uint16_t> arrivals;
  for (const std::uint32_t peer : peers) arrivals.push_back(builder.arrival(peer, 0));
  const std::uint16_t matched = builder.match(arrivals);

  std::uint16_t reduced = matched;
  const std::uint64_t own_bytes = chunks.bytes(rank);
  if (own_bytes != 0) {
    const std::uint64_t own = chunks.offset(rank);
    reduced = builder.reduce(contributions(shape.ranks, rank, own), {Place::kOutput, 0, own}, {Place::kSendSlot, 0, 0},
                             own_bytes, {matched});
    for (const std::uint32_t peer : peers) {
      builder.write(peer, 1, {Place::kSendSlot, 0, 0}, chunks.stride(), own_bytes, {reduced});
    }
  }

  // All-gather. In place, the copy out overwrites what the reduce-scatter write to this peer was sourced from; the
  // peer's finished chunk proves that it has that write, so at most a duplicate, which it drops, can still read it.
  for (const std::uint32_t peer : peers) {
    std::uint16_t copied = kNoStep;
    if (chunks.bytes(peer) != 0) {
      const std::uint16_t arrived = builder.arrival(peer, 1);
      copied = builder.copy({Place::kPeerSlot, static_cast<std::uint16_t>(peer), chunks.stride()},
                            {Place::kOutput, 0, chunks.offset(peer)}, chunks.bytes(peer), {arrived, matched});
    }
    builder.release(peer, {reduced, copied});
  }
  return builder.finish();
}

Plan build_plan(Algorithm algorithm, const Shape& shape) {
  Plan plan;
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank)
    plan.programs.push_back(algorithm == Algorithm::kOneShot ? build_one_shot(shape, rank)
                                                             : build_two_shot(shape, rank));
  return plan;
}

Algorithm choose(const Shape& shape, const Thresholds& thresholds) noexcept {
  const std::uint64_t limit = shape.ranks <= 2 ? thresholds.one_shot_bytes_pair : thresholds.one_shot_bytes;
  return shape.bytes() <= limit ? Algorithm::kOneShot : Algorithm::kTwoShot;
}

OneShotSource choose_source(const Shape& shape, const Thresholds& thresholds, bool in_place) noexcept {
  if (shape.bytes() <= thresholds.copy_in_bytes) return OneShotSource::kSendSlot;
  return in_place ? OneShotSource::kInputInPlace : OneShotSource::kInput;
}

Segmentation split(Algorithm algorithm, const Shape& shape, std::uint64_t slot_payload_bytes) {
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
