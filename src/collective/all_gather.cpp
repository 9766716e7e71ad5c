// All-gather: the second half of two-shot, on blocks that the caller has.
#include "collective/algorithms.hpp"
#include "collective/builder_parts.hpp"

namespace tensorwire::collective {

Program build_all_gather(const Shape& shape, std::uint32_t rank, WriteSource source, std::uint64_t block_stride) {
  if (shape.ranks == 1 && rank == 0) return build_alone(Algorithm::kDirect, shape);
  ProgramBuilder builder{Algorithm::kDirect, shape, rank};
  const std::uint64_t bytes = shape.bytes();
  const std::uint64_t stride = stride_bytes(shape, block_stride);
  const std::vector<std::uint32_t> peers = rotated_peers(shape.ranks, rank);

  const std::vector<std::uint16_t> input_is_free = write_to_all(builder, peers, bytes, source);
  const std::uint16_t matched = match_all(builder, peers);
  // In place, the input is this rank's own block of the output, and no other block is a source.
  if (bytes != 0 && source != WriteSource::kInputInPlace) {
    keep_input(builder, rank * stride, bytes, source, input_is_free, matched);
  }
  for (const std::uint32_t peer : peers) {
    std::uint16_t copied = kNoStep;
    if (bytes != 0) copied = builder.copy(peer_slot(peer), {Place::kOutput, 0, peer * stride}, bytes, {matched});
    builder.release(peer, {matched, copied});
  }
  return builder.finish();
}

// Why a rank may write the output of a peer: see two_shot_window.cpp. In place, what it writes is its own block, which
// nobody else writes.
Program build_all_gather_window(const Shape& shape, std::uint32_t rank, WriteSource source,
                                std::uint64_t block_stride) {
  if (shape.ranks == 1 && rank == 0) return build_alone(Algorithm::kWindow, shape);
  ProgramBuilder builder{Algorithm::kWindow, shape, rank};
  const std::uint64_t bytes = shape.bytes();
  const std::uint64_t place = rank * stride_bytes(shape, block_stride);
  const std::vector<std::uint32_t> peers = rotated_peers(shape.ranks, rank);

  const std::uint16_t matched = agree(builder, peers);
  for (const std::uint32_t peer : peers) {
    trade_outputs(builder, peer, {Place::kInput, 0, 0}, place, bytes, bytes, {matched});
  }
  if (bytes != 0 && source != WriteSource::kInputInPlace) keep_input(builder, place, bytes, source, {}, matched);
  return builder.finish();
}

}  // namespace tensorwire::collective
