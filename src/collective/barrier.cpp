// Barrier: signatures only. One hop also for many ranks, since each must hear of every other to see who disagrees.
#include "collective/algorithms.hpp"
#include "collective/builder_parts.hpp"

namespace tensorwire::collective {

Program build_barrier(const Shape& shape, std::uint32_t rank) {
  ProgramBuilder builder{Algorithm::kDirect, shape, rank};
  const std::vector<std::uint32_t> peers = rotated_peers(shape.ranks, rank);
  const std::uint16_t matched = agree(builder, peers);
  for (const std::uint32_t peer : peers) builder.release(peer, {matched});
  return builder.finish();
}

}  // namespace tensorwire::collective
