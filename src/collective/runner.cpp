// The runner's steps: what a segment does once it has begun. Pairs, credit and events are in runner_pairs.cpp.
#include "collective/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace tensorwire::collective {

void HostActions::copy(const std::byte* from, std::byte* to, std::size_t bytes) noexcept {
  if (from != to && bytes != 0) std::memcpy(to, from, bytes);
}

void HostActions::reduce(const Reduction& what, std::span<const std::byte* const> operands, std::byte* output,
                         std::byte* second_output, std::size_t bytes) noexcept {
  collective::reduce(what, operands, output, second_output, bytes / element_bytes(what.dtype));
}

Runner::Runner(const RunnerConfig& config, std::byte* scratch, std::uint32_t scratch_key, Actions& actions)
    : config_(config),
      scratch_(scratch),
      scratch_key_(scratch_key),
      actions_(&actions),
      views_(std::size_t{config.ranks} * config.depth, config.messages_in_place) {
  const bool sound = config.depth >= 2 && config.depth <= 64 && config.send_slots >= 2 && config.send_slots <= 64 &&
                     config.slot_bytes > kSlotHeaderBytes && config.slot_bytes % kSlotHeaderBytes == 0 &&
                     config.rank < config.ranks && config.ranks <= kMaxRanks;
  if (!sound) {
    throw Error{"set up the collective runner",
                fmt::format("rank {} of {}, depth {}, {} send slots, slots of {} bytes", config.rank, config.ranks,
                            config.depth, config.send_slots, config.slot_bytes),
                "Depth and send slots are 2 to 64, slots are a multiple of 64 bytes"};
  }
  pairs_.resize(config.ranks);
  instances_.resize(config.send_slots);
  arrived_.resize(std::size_t{config.ranks} * config.depth);
  owner_.assign(std::size_t{config.ranks} * config.send_slots, nullptr);
  operands_.resize(config.ranks);
  for (Instance& instance : instances_) {
    instance.send_sequence.assign(config.ranks, 0);
    instance.receive_sequence.assign(config.ranks, 0);
    instance.send_peers.reserve(config.ranks);
  }
  for (std::uint32_t i = 0; i < config.send_slots; ++i)
    std::memset(scratch_ + config.send_slot(i), 0, kSlotHeaderBytes);
}

void Runner::reserve(const Program& program) {
  if (program.shape.ranks != config_.ranks || program.rank != config_.rank) {
    throw Error{"take a program", fmt::format("it is for rank {} of {}, this is rank {} of {}", program.rank,
                                              program.shape.ranks, config_.rank, config_.ranks)};
  }
  if (program.slot_payload_bytes > config_.slot_bytes - kSlotHeaderBytes) {
    throw Error{"take a program", fmt::format("it needs slots of {} bytes, they have {}", program.slot_payload_bytes,
                                              config_.slot_bytes - kSlotHeaderBytes)};
  }
  std::size_t operands = operands_.size();
  for (const Step& step : program.steps) operands = std::max<std::size_t>(operands, step.operand_count);
  operands_.resize(operands);
  const std::size_t steps = program.steps.size();
  for (Instance& instance : instances_) {
    if (instance.pending.size() >= steps) continue;
    instance.pending.resize(steps);
    instance.ready.resize(steps);
    instance.blocked.resize(steps);
  }
}

bool Runner::can_begin() const noexcept {
  if (error_) return false;
  const Instance& instance = instances_[begun_ % config_.send_slots];
  if (instance.active) return false;
  // Its send slot may be read once more, for a retransmission, until every peer has consumed what came from it.
  return holder_of_send_slot(instance) == config_.ranks;
}

std::uint32_t Runner::holder_of_send_slot(const Instance& instance) const noexcept {
  const auto holder = std::ranges::find_if(instance.send_peers, [&](std::uint16_t peer) {
    return pairs_[peer].peer_consumed <= instance.send_sequence[peer];
  });
  return holder != instance.send_peers.end() ? *holder : config_.ranks;
}

void Runner::begin(const Segment& segment) noexcept {
  if (error_) return;
  const Program& program = *segment.program;
  Instance& instance = instances_[begun_ % config_.send_slots];
  instance.segment = segment;
  instance.number = begun_++;
  instance.active = true;
  instance.ready_head = instance.ready_tail = instance.blocked_count = instance.done = 0;
  instance.signature = signature_of(program.shape, program.algorithm, config_.communicator, segment.operation_sequence,
                                    segment.operation_count);
  std::byte* header = scratch_ + config_.send_slot(instance.number);
  store(instance.signature, header);
  if (program.peers_write_output) store(segment.output_window, header);
  ++counters_.segments;

  std::copy(program.pending.begin(), program.pending.end(), instance.pending.begin());
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    if (instance.pending[i] == 0) instance.ready[instance.ready_tail++] = static_cast<std::uint16_t>(i);
  }
  instance.send_peers.clear();
  if (program.holds_send_slot) instance.send_peers = program.send_peers;
  for (const std::uint16_t peer : program.send_peers) {
    instance.send_sequence[peer] = segment.opened ? segment.opening : pairs_[peer].next_send++;
  }
  if (program.opens()) number_invitation(instance);
  for (const std::uint16_t peer : program.receive_peers) claim(instance, peer);
  run(instance);
}

void Runner::satisfy(Instance& instance, std::uint16_t index) noexcept {
  if (--instance.pending[index] == 0) instance.ready[instance.ready_tail++] = index;
}

void Runner::run(Instance& instance) noexcept {
  while (instance.ready_head != instance.ready_tail && !error_) {
    const std::uint16_t index = instance.ready[instance.ready_head++];
    if (!execute(instance, index)) {
      instance.blocked[instance.blocked_count++] = index;
      ++counters_.credit_stalls;
      continue;
    }
    finish_step(instance, index);
  }
  finish_if_done(instance);
}

void Runner::finish_step(Instance& instance, std::uint16_t index) noexcept {
  const Program& program = *instance.segment.program;
  ++instance.done;
  if (watcher_ != nullptr) watcher_->step_done(instance.segment, instance.number, index);
  for (const std::uint16_t dependent : program.dependents_of(program.steps[index])) satisfy(instance, dependent);
}

bool Runner::execute(Instance& instance, std::uint16_t index) noexcept {
  const Step& step = instance.segment.program->steps[index];
  switch (step.kind) {
    case StepKind::kCopy:
      copy(instance, step);
      return true;
    case StepKind::kWrite:
      return write(instance, index);
    case StepKind::kMatch:
      match(instance, step);
      return true;
    case StepKind::kReduce:
      reduce(instance, step);
      return true;
    case StepKind::kRelease:
      release(instance, step.peer);
      return true;
    case StepKind::kSent:
    case StepKind::kArrival:
      return true;
  }
  return true;
}

bool Runner::write(Instance& instance, std::uint16_t index) noexcept {
  const Program& program = *instance.segment.program;
  const Step& step = program.steps[index];
  if (step.with_signature && program.opens()) return write_opening(instance);
  const Pair& pair = pairs_[step.peer];
  const std::uint64_t sequence = instance.send_sequence[step.peer];
  if (sequence >= pair.peer_consumed + config_.depth) return false;

  const std::byte* header = scratch_ + config_.send_slot(instance.number);
  const std::byte* source = source_of(instance, step.source, step.bytes);
  if (error_) return true;
  std::array<Piece, 2> pieces;
  std::size_t count = 0;
  if (step.with_signature) pieces[count++] = {header, kSlotHeaderBytes, scratch_key_};
  if (step.bytes != 0) {
    const bool adjoins = count == 1 && source == header + kSlotHeaderBytes;
    if (adjoins) {
      pieces[0].bytes += step.bytes;
    } else {
      pieces[count++] = {source, step.bytes, key_of(instance, step.source.place)};
    }
  }
  WriteRequest request;
  request.peer = step.peer;
  request.pieces = {pieces.data(), count};
  if (step.target.place == Place::kPeerOutput) {
    const std::byte* theirs = header_from(instance, step.peer);
    if (theirs == nullptr) return fail_protocol(step.peer, "it did not say where its output is"), true;
    const OutputWindow output = load_output_window(theirs);
    request.to_output = true;
    request.window = output.window;
    request.remote_offset = output.offset + step.target.offset;
  } else {
    request.remote_offset = config_.receive_slot(config_.rank, sequence) +
                            (step.with_signature ? 0 : kSlotHeaderBytes + step.target.offset);
  }
  const std::uint16_t sent_step = program.sent_steps[index];
  if (sent_step != kNoStep) request.token = instance.number << 16 | sent_step;
  post(request, {static_cast<std::uint32_t>(sequence % kSequenceModulus), 0, step.message});
  return true;
}

std::uint32_t Runner::key_of(const Instance& instance, Place place) const noexcept {
  if (place == Place::kInput) return instance.segment.input_key;
  return place == Place::kOutput ? instance.segment.output_key : scratch_key_;
}

void Runner::match(const Instance& instance, const Step& step) noexcept {
  const Program& program = *instance.segment.program;
  for (const std::uint16_t need : program.needs_of(step)) {
    const std::uint32_t peer = program.steps[need].peer;
    const std::byte* header = header_from(instance, peer);
    if (header == nullptr) return fail_protocol(peer, "its message has no signature");
    const Signature theirs = load_signature(header);
    if (theirs == instance.signature) continue;
    error_ = {Failure::kSignature, peer, difference(instance.signature, theirs), instance.signature, theirs, ""};
    return;
  }
}

void Runner::copy(const Instance& instance, const Step& step) noexcept {
  const std::byte* from = source_of(instance, step.source, step.bytes);
  if (error_) return;
  counters_.bytes_copied += step.bytes;
  actions_->copy(from, target_of(instance, step.target), step.bytes);
}

void Runner::reduce(const Instance& instance, const Step& step) noexcept {
  std::size_t count = 0;
  for (const Location& operand : instance.segment.program->operands_of(step)) {
    operands_[count++] = source_of(instance, operand, step.bytes);
  }
  if (error_) return;
  std::byte* second = step.second_target.place == Place::kNone ? nullptr : target_of(instance, step.second_target);
  const Shape& shape = instance.segment.program->shape;
  actions_->reduce({shape.dtype, step.op, shape.ranks}, {operands_.data(), count}, target_of(instance, step.target),
                   second, step.bytes);
}

const std::byte* Runner::source_of(const Instance& instance, const Location& location, std::uint64_t bytes) noexcept {
  if (location.place == Place::kInput) return instance.segment.input + location.offset;
  if (location.place != Place::kPeerSlot) return target_of(instance, location);
  const std::byte* const found =
      received(location.peer, instance.receive_sequence[location.peer], kSlotHeaderBytes + location.offset, bytes);
  if (found == nullptr) fail_protocol(location.peer, "its message has other bytes than the plan");
  return found;
}

const std::byte* Runner::received(std::uint32_t peer, std::uint64_t sequence, std::uint64_t offset,
                                  std::uint64_t bytes) const noexcept {
  const std::size_t slot = slot_index(peer, sequence);
  if (views_.empty(slot) || bytes == 0) return scratch_ + config_.receive_slot(peer, sequence) + offset;
  return views_.find(slot, offset, bytes);
}

std::byte* Runner::target_of(const Instance& instance, const Location& location) const noexcept {
  switch (location.place) {
    case Place::kOutput:
      return instance.segment.output + location.offset;
    case Place::kSendSlot:
      return scratch_ + config_.send_slot(instance.number) + kSlotHeaderBytes + location.offset;
    case Place::kPeerSlot:
      return scratch_ + config_.receive_slot(location.peer, instance.receive_sequence[location.peer]) +
             kSlotHeaderBytes + location.offset;
    case Place::kInput:
    case Place::kPeerOutput:
    case Place::kNone:
      break;
  }
  return nullptr;
}

void Runner::finish_if_done(Instance& instance) noexcept {
  if (error_ || !instance.active || instance.done != instance.segment.program->steps.size()) return;
  instance.active = false;
  while (completed_ != begun_ && !instances_[completed_ % config_.send_slots].active) ++completed_;
  const Program& program = *instance.segment.program;
  if (program.invites) unblock(program.receive_peers[0]);  // it may be invited once more
}

}  // namespace tensorwire::collective
