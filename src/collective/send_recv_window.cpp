// Send/recv straight into the receiver's output.
#include "collective/algorithms.hpp"
#include "collective/builder_parts.hpp"

namespace tensorwire::collective {

// Each of the two tells the other what it means, and neither needs the other for that: the sender announces the message
// in the slot of its sequence, the receiver invites it beside all sequences. Both may be done long before the rest
// (Runner::open); the rest waits for nothing but the transport once the other's word is there.
//
// Why the sender may write the output of the receiver: it has matched the receiver's signature, and there the message
// is not over before the bytes are in. The receiver matches the announcement for its own error line: a sender that
// disagrees sends nothing else.
//
// The invitation needs no slot, so it takes none from messages that go the other way, which the peer may be waiting for
// before it comes to this one.
Program build_send_recv_window(const Shape& shape, std::uint32_t rank) {
  ProgramBuilder builder{Algorithm::kWindow, shape, rank};
  const std::uint64_t bytes = shape.bytes();
  if (rank == shape.root) {
    builder.write(shape.peer, 0, {}, 0, 0);
    const std::uint16_t matched = builder.match({builder.arrival(shape.peer, kInvitationMessage)});
    if (bytes != 0) builder.sent(builder.write_output(shape.peer, 1, {Place::kInput, 0, 0}, 0, bytes, {matched}));
  }
  if (rank == shape.peer) {
    builder.invite(shape.root);
    const std::uint16_t matched = builder.match({builder.arrival(shape.root, 0)});
    const std::uint16_t arrived = bytes != 0 ? builder.arrival_in_output(shape.root, 1) : kNoStep;
    builder.release(shape.root, {matched, arrived});
  }
  return builder.finish();
}

}  // namespace tensorwire::collective
