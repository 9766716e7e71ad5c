// The runner's openings: what of a segment can be told to the peer before the segment begins. Who sends announces
// (message 0, in its sequence), who receives invites (beside the sequences, into a place of its own at the peer). Both
// are headers of their own memory, which a peer has done with when the sequence, or the segment of the invitation,
// `depth` before is over.
#include "collective/runner.hpp"

namespace tensorwire::collective {

namespace {

std::uint32_t partner(const Program& program) noexcept {
  return program.invites ? program.receive_peers[0] : program.send_peers[0];
}

bool is_later(std::uint32_t sequence, std::uint32_t than) noexcept {
  return static_cast<std::int32_t>(sequence - than) > 0;
}

}  // namespace

bool Runner::can_open(const Program& program) const noexcept {
  if (error_) return false;
  const std::uint32_t peer = partner(program);
  if (!program.invites) return has_room(peer);
  return pairs_[peer].next_invitation < oldest_invitation(peer) + config_.depth;
}

void Runner::open(Segment& segment) noexcept {
  Pair& pair = pairs_[partner(*segment.program)];
  segment.opened = true;
  segment.opening = segment.program->invites ? pair.next_invitation++ : pair.next_send++;
  tell(segment, segment.opening);
}

void Runner::tell(const Segment& segment, std::uint64_t number) noexcept {
  const Program& program = *segment.program;
  const std::uint32_t peer = partner(program);
  const bool invites = program.invites;
  std::byte* head =
      scratch_ + (invites ? config_.invitation_out(peer, number) : config_.announcement_out(peer, number));
  store(signature_of(program.shape, program.algorithm, config_.communicator, segment.operation_sequence,
                     segment.operation_count),
        head);
  if (invites) store(segment.output_window, head);
  const Piece piece{head, kSlotHeaderBytes, scratch_key_};
  WriteRequest request;
  request.peer = peer;
  request.pieces = {&piece, 1};
  request.remote_offset =
      invites ? config_.invitation_in(config_.rank, number) : config_.receive_slot(config_.rank, number);
  const std::uint8_t message = invites ? kInvitationMessage : std::uint8_t{0};
  post(request, {static_cast<std::uint32_t>(number % kSequenceModulus), 0, message});
}

bool Runner::can_go_on(const Segment& opened) const noexcept {
  const Program& program = *opened.program;
  const std::uint32_t peer = partner(program);
  const Pair& pair = pairs_[peer];
  const Signature mine = signature_of(program.shape, program.algorithm, config_.communicator, opened.operation_sequence,
                                      opened.operation_count);
  if (program.invites) {
    if (!has_arrived(peer)) return false;
    const std::byte* header = received(peer, pair.next_receive, 0, kSlotHeaderBytes);
    return header == nullptr || load_signature(header) != mine || has_arrived(peer, 1);
  }
  if (!is_invited(pair, pair.accepted)) return false;
  // Where ranks disagree on what goes straight into outputs, it may be for a message after this one; the peer sees what
  // is wrong with this one.
  const Signature theirs = load_signature(scratch_ + config_.invitation_in(peer, pair.accepted));
  return theirs.collective != mine.collective || !is_later(theirs.sequence, mine.sequence);
}

bool Runner::is_invited(const Pair& pair, std::uint64_t number) const noexcept {
  return number < pair.settled + config_.depth && (pair.invited >> (number % config_.depth) & 1) != 0;
}

std::uint64_t Runner::oldest_invitation(std::uint32_t peer) const noexcept {
  for (std::uint64_t number = completed_; number != begun_; ++number) {
    const Instance& instance = instances_[number % config_.send_slots];
    const Program& program = *instance.segment.program;
    if (!instance.active || !program.invites || program.receive_peers[0] != peer) continue;
    return instance.invitation;  // they are begun in order
  }
  return pairs_[peer].begun_invitations;
}

bool Runner::write_opening(const Instance& instance) noexcept {
  const Segment& segment = instance.segment;
  if (segment.opened) return true;
  const std::uint32_t peer = partner(*segment.program);
  if (segment.program->invites) {
    if (instance.invitation >= oldest_invitation(peer) + config_.depth) return false;
    tell(segment, instance.invitation);
    return true;
  }
  const std::uint64_t sequence = instance.send_sequence[peer];
  if (sequence >= pairs_[peer].peer_consumed + config_.depth) return false;
  tell(segment, sequence);
  return true;
}

void Runner::number_invitation(Instance& instance) noexcept {
  const Segment& segment = instance.segment;
  const Program& program = *segment.program;
  Pair& pair = pairs_[partner(program)];
  if (program.invites) {
    instance.invitation = segment.opened ? segment.opening : pair.next_invitation++;
    pair.begun_invitations = instance.invitation + 1;
    return;
  }
  instance.invitation = pair.accepted++;
  if (!is_invited(pair, instance.invitation)) return;
  satisfy(instance, program.invitation);
  settle_invitations(pair);
}

void Runner::take_invitation(std::uint32_t peer, std::uint32_t low) noexcept {
  Pair& pair = pairs_[peer];
  const std::uint32_t ahead = sequence_distance(pair.settled, low);
  if (ahead >= config_.depth) return fail_protocol(peer, "its invitation is outside of the window");
  const std::uint64_t number = pair.settled + ahead;
  if (is_invited(pair, number)) return fail_protocol(peer, "it sent an invitation twice");
  pair.invited |= std::uint64_t{1} << number % config_.depth;
  if (number >= pair.accepted) return;  // begin() will find the bit
  settle_invitations(pair);
  for (std::uint64_t segment = completed_; segment != begun_; ++segment) {
    Instance& instance = instances_[segment % config_.send_slots];
    const Program& program = *instance.segment.program;
    const bool invited = instance.active && program.invitation != kNoStep && program.send_peers[0] == peer;
    if (!invited || instance.invitation != number) continue;
    satisfy(instance, program.invitation);
    return run(instance);
  }
}

void Runner::settle_invitations(Pair& pair) noexcept {
  for (; pair.settled < pair.accepted && is_invited(pair, pair.settled); ++pair.settled) {
    pair.invited &= ~(std::uint64_t{1} << pair.settled % config_.depth);
  }
}

const std::byte* Runner::header_from(const Instance& instance, std::uint32_t peer) const noexcept {
  if (instance.segment.program->invitation != kNoStep) {
    return scratch_ + config_.invitation_in(peer, instance.invitation);
  }
  return received(peer, instance.receive_sequence[peer], 0, kSlotHeaderBytes);
}

}  // namespace tensorwire::collective
