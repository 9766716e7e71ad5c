// The runner's directed pairs: sequences, slots, arrivals and credit.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "collective/runner.hpp"

namespace tensorwire::collective {

static_assert(kInvitationMessage + 1 == kCreditMessage, "every other number is a message's");

void Runner::fail_protocol(std::uint32_t peer, const char* detail) noexcept {
  if (!error_) error_ = {Failure::kProtocol, peer, SignatureField::kNone, {}, {}, detail};
}

void Runner::claim(Instance& instance, std::uint32_t peer) noexcept {
  const Program& program = *instance.segment.program;
  const std::uint64_t sequence = pairs_[peer].next_receive++;
  const std::size_t slot = slot_index(peer, sequence);
  instance.receive_sequence[peer] = sequence;
  owner_[owner_index(peer, sequence)] = &instance;
  if (sequence >= pairs_[peer].consumed + config_.depth) return;  // the slot still belongs to an earlier sequence
  // The peer may have been faster.
  const Arrived& arrived = arrived_[slot];
  for (std::size_t word = 0; word < arrived.words.size(); ++word) {
    for (std::uint64_t bits = arrived.words[word]; bits != 0; bits &= bits - 1) {
      const auto message = static_cast<std::uint32_t>(word * 64) + static_cast<std::uint32_t>(std::countr_zero(bits));
      take_message(instance, program, peer, message);
    }
  }
}

void Runner::take_message(Instance& instance, const Program& program, std::uint32_t peer,
                          std::uint32_t message) noexcept {
  const std::uint16_t step = program.arrival_step(peer, message);
  if (step == kNoStep) {
    // The plans differ. If the signatures do too, kMatch says so better than we could.
    const std::uint64_t sequence = instance.receive_sequence[peer];
    const bool signature_is_in = arrived_[slot_index(peer, sequence)].has(0);
    const std::byte* header = received(peer, sequence, 0, kSlotHeaderBytes);
    if (signature_is_in && header != nullptr && load_signature(header) == instance.signature) {
      fail_protocol(peer, "it sent a message that is not in the plan");
    }
    return;
  }
  satisfy(instance, step);
}

bool Runner::has_arrived(std::uint32_t peer, std::uint32_t message) const noexcept {
  const Pair& pair = pairs_[peer];
  if (pair.next_receive >= pair.consumed + config_.depth)
    return false;  // the slot still belongs to an earlier sequence
  return arrived_[slot_index(peer, pair.next_receive)].has(message);
}

void Runner::on_arrival(std::uint32_t peer, std::uint32_t bits, const InPlace& in_place) noexcept {
  if (error_) return;
  const Immediate immediate = Immediate::unpack(bits);
  if (peer >= config_.ranks || peer == config_.rank) return fail_protocol(peer, "no such peer");
  Pair& pair = pairs_[peer];
  ++counters_.arrivals;
  take_credit(peer, immediate.credit);
  if (immediate.message == kCreditMessage) return;
  if (immediate.message == kInvitationMessage) return take_invitation(peer, immediate.sequence);

  const std::uint32_t ahead = sequence_distance(pair.consumed, immediate.sequence);
  if (ahead >= config_.depth) return fail_protocol(peer, "its sequence is outside of the window");
  const std::uint64_t sequence = pair.consumed + ahead;
  const std::size_t slot = slot_index(peer, sequence);
  if (arrived_[slot].has(immediate.message)) return fail_protocol(peer, "it sent a message twice");
  if (in_place.bytes != 0) {
    InPlace view = in_place;
    view.offset -= config_.receive_slot(peer, sequence) - config_.receive_slot(peer, 0);
    const bool inside = view.offset <= config_.slot_bytes && view.bytes <= config_.slot_bytes - view.offset;
    if (!inside) return fail_protocol(peer, "its message is for another slot");
    if (!views_.add(slot, view)) return fail_protocol(peer, "it sent more messages than any plan has");
  }
  arrived_[slot].add(immediate.message);
  pair.heard = std::max(pair.heard, sequence + 1);
  if (sequence >= pair.next_receive) return;  // it is ahead of us: claim() will find the bit
  Instance& instance = *owner_[owner_index(peer, sequence)];
  if (!instance.active || instance.receive_sequence[peer] != sequence) {
    return fail_protocol(peer, "it sent a message for a slot that was released");
  }
  take_message(instance, *instance.segment.program, peer, immediate.message);
  run(instance);
}

void Runner::on_sent(std::uint64_t token) noexcept {
  if (error_) return;
  Instance& instance = instances_[(token >> 16) % config_.send_slots];
  const auto step = static_cast<std::uint16_t>(token);
  const bool known = instance.active && instance.number == token >> 16 &&
                     step < instance.segment.program->steps.size() && instance.pending[step] != 0;
  if (!known) return fail_protocol(config_.rank, "the transport reports a write that is not under way");
  satisfy(instance, step);
  run(instance);
}

void Runner::take_credit(std::uint32_t peer, std::uint32_t credit) noexcept {
  Pair& pair = pairs_[peer];
  const std::uint32_t ahead = sequence_distance(pair.peer_consumed, credit);
  if (ahead == 0) return;
  if (ahead <= pair.next_send - pair.peer_consumed) {
    pair.peer_consumed += ahead;
    unblock(peer);
    return;
  }
  // Behind what is known: a message that was overtaken. Ahead of what was ever sent: nonsense.
  if (ahead < kSequenceModulus / 2) fail_protocol(peer, "it gives credit for what was never sent");
}

void Runner::unblock(std::uint32_t peer) noexcept {
  // Oldest segment first: its sequence is the one that the credit is for.
  for (std::uint64_t number = completed_; number != begun_; ++number) {
    Instance& instance = instances_[number % config_.send_slots];
    if (!instance.active || instance.blocked_count == 0) continue;
    std::uint32_t kept = 0;
    const std::uint32_t count = instance.blocked_count;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint16_t step = instance.blocked[i];
      if (instance.segment.program->steps[step].peer == peer && write(instance, step)) {
        finish_step(instance, step);
      } else {
        instance.blocked[kept++] = step;
      }
    }
    instance.blocked_count = kept;
    run(instance);
  }
}

void Runner::release(const Instance& instance, std::uint32_t peer) noexcept {
  Pair& pair = pairs_[peer];
  const auto& senders = instance.segment.program->send_peers;
  const bool returns = std::binary_search(senders.begin(), senders.end(), static_cast<std::uint16_t>(peer));
  const auto bit_of = [&](std::uint64_t sequence) { return std::uint64_t{1} << (sequence % config_.depth); };
  if (pair.consumed == pair.told) pair.untold_since = completed_;
  pair.owes_credit = pair.owes_credit || !returns;
  pair.released |= bit_of(instance.receive_sequence[peer]);
  pair.last_released = {true, instance.signature.collective, instance.signature.sequence};
  while ((pair.released & bit_of(pair.consumed)) != 0) {
    pair.released &= ~bit_of(pair.consumed);
    arrived_[slot_index(peer, pair.consumed)] = {};
    views_.clear(slot_index(peer, pair.consumed));
    ++pair.consumed;
  }
}

void Runner::post(WriteRequest request, Immediate immediate) noexcept {
  Pair& pair = pairs_[request.peer];
  immediate.credit = static_cast<std::uint32_t>(pair.consumed % kSequenceModulus);
  request.immediate = immediate.pack();
  pair.told = pair.consumed;
  pair.owes_credit = false;
  ++counters_.writes;
  for (const Piece& piece : request.pieces) counters_.bytes_written += piece.bytes;
  if (!actions_->write(request) && !error_) {
    error_ = {Failure::kTransport, request.peer, SignatureField::kNone, {}, {}, ""};
  }
}

void Runner::flush_credit(bool all) noexcept {
  for (std::uint32_t peer = 0; peer < config_.ranks && !error_; ++peer) {
    Pair& pair = pairs_[peer];
    if (pair.consumed == pair.told) continue;
    // The peer may be waiting: its window is used up as it knows it (where it is ahead of us, the segment that we have
    // yet to begin will tell it); or its send slot is held back by us and nothing that we sent since could say so; or
    // the plan sends nothing back at all. Else the next write carries the credit.
    const bool window_used_up = pair.heard >= pair.told + config_.depth && pair.next_receive >= pair.heard;
    const bool silent_for_long = completed_ - pair.untold_since >= config_.send_slots;
    if (!all && !window_used_up && !silent_for_long && !pair.owes_credit) continue;
    ++counters_.credit_writes;
    WriteRequest request;
    request.peer = peer;
    request.remote_offset = config_.receive_slot(config_.rank, 0);
    post(request, {0, 0, kCreditMessage});
  }
}

Runner::Waiting Runner::waiting_for() const noexcept {
  for (std::uint64_t number = completed_; number != begun_; ++number) {
    const Instance& instance = instances_[number % config_.send_slots];
    if (!instance.active) continue;
    const Program& program = *instance.segment.program;
    if (instance.blocked_count != 0) return {program.steps[instance.blocked[0]].peer, "to free a slot"};
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      const Step& step = program.steps[i];
      if (instance.pending[i] != 1) continue;
      if (step.kind == StepKind::kArrival) {
        return {step.peer, step.message == kInvitationMessage ? "to receive" : "to send its part"};
      }
      if (step.kind == StepKind::kSent) return {step.peer, "to acknowledge a write"};
    }
  }
  return {config_.ranks, "nothing"};
}

Runner::Waiting Runner::waiting_to_begin() const noexcept {
  const Instance& instance = instances_[begun_ % config_.send_slots];
  if (instance.active) return waiting_for();
  return {holder_of_send_slot(instance), "to take what was sent to it before"};
}

Heard Runner::last_heard(std::uint32_t peer) const noexcept {
  const Pair& pair = pairs_[peer];
  // What lies in slots that were given back may be half overwritten.
  for (std::uint64_t sequence = pair.heard; sequence > pair.consumed; --sequence) {
    if (!arrived_[slot_index(peer, sequence - 1)].has(0)) continue;
    const std::byte* header = received(peer, sequence - 1, 0, kSlotHeaderBytes);
    if (header == nullptr) continue;
    const Signature signature = load_signature(header);
    return {true, signature.collective, signature.sequence};
  }
  return pair.last_released;
}

std::string to_string(const RunnerError& error) {
  switch (error.failure) {
    case Failure::kNone:
      return "no error";
    case Failure::kTransport:
      return fmt::format("a write to rank {} could not be posted", error.peer);
    case Failure::kSignature:
      return fmt::format("rank {} disagrees on the {}: {} there, {} here", error.peer, name_of(error.field),
                         field_text(error.theirs, error.field), field_text(error.mine, error.field));
    case Failure::kProtocol:
      return fmt::format("rank {} broke the protocol: {}", error.peer, error.detail);
  }
  return "unknown error";
}

}  // namespace tensorwire::collective
