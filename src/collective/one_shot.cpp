// All-reduce in one hop.
#include "collective/algorithms.hpp"
#include "collective/builder_parts.hpp"

namespace tensorwire::collective {

// Bytes that the CPU touches for a tensor of S bytes (r = read, w = write), the transport's own aside:
//   kSendSlot: copy in S r + S w; reduce n S r + S w         n = 2: 5 S
//   kInput:    reduce n S r + S w                            n = 2: 3 S, but the end waits for acknowledgements
Program build_one_shot(const Shape& shape, std::uint32_t rank, WriteSource source) {
  if (shape.ranks == 1 && rank == 0) return build_alone(Algorithm::kOneShot, shape);
  ProgramBuilder builder{Algorithm::kOneShot, shape, rank};
  const std::uint64_t bytes = shape.bytes();
  const std::vector<std::uint32_t> peers = rotated_peers(shape.ranks, rank);

  // In place the sum overwrites the source, and a peer's arrival does not say that the peer has ours.
  std::vector<std::uint16_t> before_output = write_to_all(builder, peers, bytes, source);
  if (source == WriteSource::kInput) before_output.clear();
  std::uint16_t last_read = match_all(builder, peers);
  if (bytes != 0) {
    before_output.push_back(last_read);
    last_read = builder.reduce(contributions(shape.ranks, rank, 0), {Place::kOutput, 0, 0}, {}, bytes, before_output);
  }
  for (const std::uint32_t peer : peers) builder.release(peer, {last_read});
  return builder.finish();
}

}  // namespace tensorwire::collective
