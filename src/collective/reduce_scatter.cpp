// Reduce-scatter: the first half of two-shot, on blocks that the caller has cut.
#include "collective/algorithms.hpp"
#include "collective/builder_parts.hpp"

namespace tensorwire::collective {

// Bytes that the CPU touches for blocks of S bytes, the transport's own aside: reduce n S r + S w.
Program build_reduce_scatter(const Shape& shape, std::uint32_t rank, std::uint64_t block_stride) {
  if (shape.ranks == 1 && rank == 0) return build_alone(Algorithm::kDirect, shape);
  ProgramBuilder builder{Algorithm::kDirect, shape, rank};
  const std::uint64_t bytes = shape.bytes();
  const std::uint64_t stride = stride_bytes(shape, block_stride);
  const std::vector<std::uint32_t> peers = rotated_peers(shape.ranks, rank);

  for (const std::uint32_t peer : peers) send_block(builder, peer, peer * stride, bytes);
  std::uint16_t last = match_all(builder, peers);
  // In place, the output is this rank's own block of the input, which no write is sourced from.
  if (bytes != 0) {
    last = builder.reduce(contributions(shape.ranks, rank, rank * stride), {Place::kOutput, 0, 0}, {}, bytes, {last});
  }
  for (const std::uint32_t peer : peers) builder.release(peer, {last});
  return builder.finish();
}

}  // namespace tensorwire::collective
