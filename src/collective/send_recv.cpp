// Send/recv: one directed pair; nobody else takes part.
#include "collective/algorithms.hpp"
#include "collective/builder_parts.hpp"

namespace tensorwire::collective {

Program build_send_recv(const Shape& shape, std::uint32_t rank, WriteSource source) {
  ProgramBuilder builder{Algorithm::kDirect, shape, rank};
  const std::uint64_t bytes = shape.bytes();
  if (rank == shape.root && bytes != 0) write_to_all(builder, {shape.peer}, bytes, source);
  // The signature alone, followed to its end as any other message: a sender holds no slot that its peer must free.
  if (rank == shape.root && bytes == 0) builder.sent(builder.write(shape.peer, 0, {}, 0, 0));
  if (rank == shape.peer) {
    const std::uint16_t matched = builder.match({builder.arrival(shape.root, 0)});
    std::uint16_t copied = kNoStep;
    if (bytes != 0) copied = builder.copy(peer_slot(shape.root), {Place::kOutput, 0, 0}, bytes, {matched});
    builder.release(shape.root, {matched, copied});
  }
  return builder.finish();
}

}  // namespace tensorwire::collective
