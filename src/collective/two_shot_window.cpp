// All-reduce in two hops, the second straight into user memory.
#include "collective/algorithms.hpp"
#include "collective/builder_parts.hpp"

namespace tensorwire::collective {

// Why a rank may write the output of a peer:
// - It has matched the signatures of all others before it writes. So every one of them means the same operation. A rank
//   that disagrees with the peer disagrees with the writer, too, who then does not write: no bytes of an operation on
//   which ranks disagree reach anyone's user memory, though the peer itself may not have matched yet.
// - The peer told where its output is in message 0, which it sends when the operation has begun there; and there the
//   operation does not end before all these writes are in. A rank that gives up sooner must first make its queue pairs
//   refuse them: that is the communicator's duty.
// - In place, chunk j of the peer's output is chunk j of its input, of which the peer needs nothing any more: what it
//   contributes to the sum of chunk j is what rank j, the writer, had from it before the sum was made. If the peer's
//   HCA sends that once more because it missed the acknowledgement, the writer's drops it as a duplicate. Its own chunk
//   is the only one that the peer reads itself, and nobody else writes that one.
// - Segments of one operation, of which several may be under way, have disjoint parts of the output.
//
// Bytes that the CPU touches for a tensor of S bytes, the transport's own aside: reduce S r + S/n w.
Program build_two_shot_window(const Shape& shape, std::uint32_t rank) {
  if (shape.ranks == 1 && rank == 0) return build_alone(Algorithm::kTwoShotWindow, shape);
  ProgramBuilder builder{Algorithm::kTwoShotWindow, shape, rank};
  const Chunks chunks{shape.bytes(), shape.ranks};
  const std::vector<std::uint32_t> peers = rotated_peers(shape.ranks, rank);

  for (const std::uint32_t peer : peers) send_block(builder, peer, chunks.offset(peer), chunks.bytes(peer));
  const std::uint16_t matched = match_all(builder, peers);

  std::uint16_t reduced = matched;
  const std::uint64_t own_bytes = chunks.bytes(rank);
  const Location own{Place::kOutput, 0, chunks.offset(rank)};
  if (own_bytes != 0) {
    reduced = builder.reduce(contributions(shape.ranks, rank, own.offset), own, {}, own_bytes, {matched});
  }
  for (const std::uint32_t peer : peers) {
    trade_outputs(builder, peer, own, own.offset, own_bytes, chunks.bytes(peer), {reduced});
  }
  return builder.finish();
}

}  // namespace tensorwire::collective
