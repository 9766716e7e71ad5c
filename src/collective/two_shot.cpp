// All-reduce in two hops.
#include "collective/algorithms.hpp"
#include "collective/builder_parts.hpp"

namespace tensorwire::collective {

// Bytes that the CPU touches for a tensor of S bytes, the transport's own aside:
//   reduce S r + 2 S/n w (user output and send slot); copy out (n-1)/n S r + (n-1)/n S w        n = 2: 3 S
// The slot of a peer holds two areas: its part of our chunk, then (one stride on) its finished chunk.
Program build_two_shot(const Shape& shape, std::uint32_t rank) {
  if (shape.ranks == 1 && rank == 0) return build_alone(Algorithm::kTwoShot, shape);
  ProgramBuilder builder{Algorithm::kTwoShot, shape, rank};
  const Chunks chunks{shape.bytes(), shape.ranks};
  const std::vector<std::uint32_t> peers = rotated_peers(shape.ranks, rank);

  // Reduce-scatter, straight from user memory: the operation must not end while these could still be sent again.
  for (const std::uint32_t peer : peers) send_block(builder, peer, chunks.offset(peer), chunks.bytes(peer));
  const std::uint16_t matched = match_all(builder, peers);

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
      copied = builder.copy(peer_slot(peer, chunks.stride()), {Place::kOutput, 0, chunks.offset(peer)},
                            chunks.bytes(peer), {arrived, matched});
    }
    builder.release(peer, {reduced, copied});
  }
  return builder.finish();
}

}  // namespace tensorwire::collective
