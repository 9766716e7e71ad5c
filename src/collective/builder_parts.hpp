// What the builders have in common: chunks of a tensor, rotation of peers, lists of operands. Internal to the builders.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/round_up.hpp"
#include "collective/builders.hpp"

namespace tensorwire::collective {

/// Bytes cut into equal chunks, each beginning at a multiple of kChunkAlignment; the last ones may be short or empty.
class Chunks {
 public:
  Chunks(std::uint64_t total, std::uint32_t chunks) noexcept : total_(total) {
    assert(chunks != 0);
    chunk_ = round_up((total + chunks - 1) / chunks, kChunkAlignment);
  }

  [[nodiscard]] std::uint64_t offset(std::uint32_t index) const noexcept { return std::min(total_, index * chunk_); }
  [[nodiscard]] std::uint64_t bytes(std::uint32_t index) const noexcept { return offset(index + 1) - offset(index); }
  [[nodiscard]] std::uint64_t stride() const noexcept { return chunk_; }

 private:
  std::uint64_t total_;
  std::uint64_t chunk_ = 0;
};

[[nodiscard]] inline Location peer_slot(std::uint32_t peer, std::uint64_t offset = 0) noexcept {
  return {Place::kPeerSlot, static_cast<std::uint16_t>(peer), offset};
}

/// The peers of `rank`, beginning with its successor: destinations rotate, so that nobody is everyone's first.
[[nodiscard]] inline std::vector<std::uint32_t> rotated_peers(std::uint32_t ranks, std::uint32_t rank) {
  std::vector<std::uint32_t> peers;
  for (std::uint32_t k = 1; k < ranks; ++k) peers.push_back((rank + k) % ranks);
  return peers;
}

/// Every rank's contribution, in rank order: the peers' from the start of their slots, one's own from the input.
[[nodiscard]] inline std::vector<Location> contributions(std::uint32_t ranks, std::uint32_t rank,
                                                         std::uint64_t input_offset) {
  std::vector<Location> operands;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    operands.push_back(r == rank ? Location{Place::kInput, 0, input_offset} : peer_slot(r));
  }
  return operands;
}

/// From the block of one rank to the next in user memory. @param block_stride as in BuildOptions.
[[nodiscard]] inline std::uint64_t stride_bytes(const Shape& shape, std::uint64_t block_stride) noexcept {
  return (block_stride != 0 ? block_stride : shape.count) * element_bytes(shape.dtype);
}

/// The first `bytes` of the input to the slots of all `peers`, as message 0. Returns what must be done before the input
/// may change.
inline std::vector<std::uint16_t> write_to_all(ProgramBuilder& builder, const std::vector<std::uint32_t>& peers,
                                               std::uint64_t bytes, WriteSource source) {
  std::vector<std::uint16_t> free;
  std::uint16_t copied = kNoStep;
  Location from{Place::kInput, 0, 0};
  if (source == WriteSource::kSendSlot && bytes != 0 && !peers.empty()) {
    copied = builder.copy(from, {Place::kSendSlot, 0, 0}, bytes);
    from.place = Place::kSendSlot;
    free.push_back(copied);
  }
  for (const std::uint32_t peer : peers) {
    const std::uint16_t written = builder.write(peer, 0, from, 0, bytes, {copied});
    if (from.place == Place::kInput && bytes != 0) free.push_back(builder.sent(written));
  }
  return free;
}

/// A block of the input to the start of the peer's slot, as message 0. An empty one still brings its signature. Returns
/// what must be done before the block may change, or the operation end.
inline std::uint16_t send_block(ProgramBuilder& builder, std::uint32_t peer, std::uint64_t input_offset,
                                std::uint64_t bytes) {
  const std::uint16_t written = builder.write(peer, 0, {Place::kInput, 0, input_offset}, 0, bytes);
  return bytes != 0 ? builder.sent(written) : kNoStep;
}

/// The signatures of all `peers`, of which `rank_of` makes ranks; kNoStep when there are none.
template <class RankOf = std::identity>
std::uint16_t match_all(ProgramBuilder& builder, const std::vector<std::uint32_t>& peers, const RankOf& rank_of = {}) {
  std::vector<std::uint16_t> arrivals;
  for (const std::uint32_t peer : peers) arrivals.push_back(builder.arrival(rank_of(peer), 0));
  return arrivals.empty() ? kNoStep : builder.match(arrivals);
}

/// Signatures, and where the outputs are, from all `peers` to all; then those of the peers, matched.
inline std::uint16_t agree(ProgramBuilder& builder, const std::vector<std::uint32_t>& peers) {
  for (const std::uint32_t peer : peers) builder.write(peer, 0, {}, 0, 0);
  return match_all(builder, peers);
}

/// Bytes straight into the peer's output when all of `ready` is done, as message 1, and those of the peer into this
/// rank's; then the slot is given back in which the peer told where its output is.
inline void trade_outputs(ProgramBuilder& builder, std::uint32_t peer, Location from, std::uint64_t target_offset,
                          std::uint64_t bytes, std::uint64_t bytes_back, std::vector<std::uint16_t> ready) {
  std::uint16_t written = kNoStep;
  if (bytes != 0) {
    written = builder.write_output(peer, 1, from, target_offset, bytes, ready);
    builder.sent(written);
  }
  const std::uint16_t arrived = bytes_back != 0 ? builder.arrival_in_output(peer, 1) : kNoStep;
  ready.insert(ready.end(), {written, arrived});
  builder.release(peer, ready);
}

/// Plans that add up in parts keep no wider sum in between.
[[nodiscard]] inline bool may_add_in_parts(const Shape& shape) noexcept {
  return shape.op != Op::kAverage || shape.dtype != DType::kInt32;
}
inline void refuse_average_of_parts(const Shape& shape, const char* plan) {
  if (may_add_in_parts(shape)) return;
  throw Error{std::string{"build a "} + plan, "a sum that wraps around in between cannot be averaged", "Use two-shot"};
}

/// The input to its place in the output. A send slot is filled first: in place, the two are the same bytes.
inline void keep_input(ProgramBuilder& builder, std::uint64_t output_offset, std::uint64_t bytes, WriteSource source,
                       std::vector<std::uint16_t> input_is_free, std::uint16_t matched) {
  if (source != WriteSource::kSendSlot) input_is_free.clear();
  input_is_free.push_back(matched);
  builder.copy({Place::kInput, 0, 0}, {Place::kOutput, 0, output_offset}, bytes, input_is_free);
}

/// One rank alone: its input is its output.
[[nodiscard]] inline Program build_alone(Algorithm algorithm, const Shape& shape) {
  ProgramBuilder builder{algorithm, shape, 0};
  if (shape.count != 0) builder.copy({Place::kInput, 0, 0}, {Place::kOutput, 0, 0}, shape.bytes());
  return builder.finish();
}

}  // namespace tensorwire::collective
