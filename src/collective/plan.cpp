#include "collective/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace tensorwire::collective {

namespace {

[[noreturn]] void refuse(const Program& program, const std::string& why) {
  throw Error{fmt::format("build the {} program of rank {}", name_of(program.algorithm), program.rank), why};
}

std::uint64_t end_in_slot(const Location& location, std::uint64_t bytes) noexcept {
  const bool in_slot = location.place == Place::kSendSlot || location.place == Place::kPeerSlot;
  return in_slot ? location.offset + bytes : 0;
}

void note_peer(std::vector<std::uint16_t>& peers, std::uint16_t peer) {
  const auto at = std::lower_bound(peers.begin(), peers.end(), peer);
  if (at == peers.end() || *at != peer) peers.insert(at, peer);
}

/// The reverse of the needs, and how many things each step waits for.
void derive_dependents(Program& program) {
  program.pending.assign(program.steps.size(), 0);
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    const bool waits_for_event = step.kind == StepKind::kArrival || step.kind == StepKind::kSent;
    program.pending[i] = static_cast<std::uint16_t>(step.need_count + (waits_for_event ? 1 : 0));
    for (const std::uint16_t need : program.needs_of(step)) ++program.steps[need].dependent_count;
  }
  std::uint32_t total = 0;
  for (Step& step : program.steps) {
    step.first_dependent = total;
    total += step.dependent_count;
    step.dependent_count = 0;
  }
  program.dependents.resize(total);
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    for (const std::uint16_t need : program.needs_of(program.steps[i])) {
      Step& needed = program.steps[need];
      program.dependents[needed.first_dependent + needed.dependent_count++] = static_cast<std::uint16_t>(i);
    }
  }
}

void derive_peers_and_sizes(Program& program) {
  for (const Step& step : program.steps) {
    if (step.message == kInvitationMessage) continue;
    if (step.kind == StepKind::kWrite) note_peer(program.send_peers, step.peer);
    if (step.kind == StepKind::kArrival) note_peer(program.receive_peers, step.peer);
    if (step.kind == StepKind::kWrite || step.kind == StepKind::kArrival) {
      program.messages = std::max<std::uint32_t>(program.messages, step.message + 1U);
    }
    std::uint64_t& most = program.slot_payload_bytes;
    for (const Location& location : {step.source, step.target, step.second_target}) {
      most = std::max(most, end_in_slot(location, step.bytes));
    }
    for (const Location& operand : program.operands_of(step)) most = std::max(most, end_in_slot(operand, step.bytes));
  }
}

void derive_event_steps(Program& program) {
  program.arrival_steps.assign(std::size_t{program.shape.ranks} * program.messages, kNoStep);
  program.sent_steps.assign(program.steps.size(), kNoStep);
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    const auto index = static_cast<std::uint16_t>(i);
    if (step.message == kInvitationMessage) {
      if (program.opens()) refuse(program, "it has more than one invitation");
      if (step.kind == StepKind::kArrival) program.invitation = index;
      if (step.kind == StepKind::kWrite) program.invites = true;
      continue;
    }
    if (step.kind == StepKind::kArrival) {
      std::uint16_t& entry = program.arrival_steps[std::size_t{step.peer} * program.messages + step.message];
      if (entry != kNoStep)
        refuse(program, fmt::format("message {} of rank {} is awaited twice", step.message, step.peer));
      entry = index;
    }
    if (step.kind == StepKind::kSent) program.sent_steps[step.write_step] = index;
  }
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    // What goes ahead of a segment has memory of its own.
    const bool from_slot = !program.opens() || !program.steps[i].with_signature;
    const bool untracked = program.steps[i].kind == StepKind::kWrite && program.sent_steps[i] == kNoStep && from_slot;
    program.holds_send_slot = program.holds_send_slot || untracked;
  }
}

}  // namespace

ProgramBuilder::ProgramBuilder(Algorithm algorithm, const Shape& shape, std::uint32_t rank, std::uint32_t group_ranks) {
  program_.algorithm = algorithm;
  program_.shape = shape;
  program_.rank = rank;
  program_.group_ranks = group_ranks;
  if (shape.ranks == 0 || shape.ranks > kMaxRanks) {
    refuse(program_, fmt::format("{} ranks; 1 to {} are possible", shape.ranks, kMaxRanks));
  }
  if (rank >= shape.ranks) refuse(program_, fmt::format("there are only {} ranks", shape.ranks));
}

std::uint16_t ProgramBuilder::add(Step step, const std::vector<std::uint16_t>& needs) {
  const std::size_t index = program_.steps.size();
  if (index >= kNoStep) refuse(program_, "too many steps");
  step.first_need = static_cast<std::uint32_t>(program_.needs.size());
  for (const std::uint16_t need : needs) {
    if (need == kNoStep) continue;  // an optional step that was left out
    if (need >= index) refuse(program_, fmt::format("step {} needs step {}, which is not an earlier one", index, need));
    program_.needs.push_back(need);
  }
  step.need_count = static_cast<std::uint32_t>(program_.needs.size()) - step.first_need;
  program_.steps.push_back(step);
  return static_cast<std::uint16_t>(index);
}

std::uint16_t ProgramBuilder::copy(Location source, Location target, std::uint64_t bytes,
                                   std::vector<std::uint16_t> needs) {
  Step step;
  step.kind = StepKind::kCopy;
  step.bytes = bytes;
  step.source = source;
  step.target = target;
  return add(step, needs);
}

std::uint16_t ProgramBuilder::add_write(std::uint32_t peer, std::uint8_t message, Location source, Location target,
                                        std::uint64_t bytes, const std::vector<std::uint16_t>& needs) {
  if (peer >= program_.shape.ranks || peer == program_.rank) refuse(program_, fmt::format("a write to rank {}", peer));
  if (message > kInvitationMessage) refuse(program_, fmt::format("message number {} is too high", message));
  Step step;
  step.kind = StepKind::kWrite;
  step.message = message;
  step.peer = static_cast<std::uint16_t>(peer);
  step.with_signature = message == 0 || message == kInvitationMessage;
  step.bytes = bytes;
  step.source = source;
  step.target = target;
  if (step.with_signature && (target.place != Place::kPeerSlot || target.offset != 0)) {
    refuse(program_, "message 0 must begin at the start of the slot");
  }
  return add(step, needs);
}

std::uint16_t ProgramBuilder::write(std::uint32_t peer, std::uint8_t message, Location source,
                                    std::uint64_t target_offset, std::uint64_t bytes,
                                    std::vector<std::uint16_t> needs) {
  if (message >= kMaxMessages) refuse(program_, fmt::format("message number {} is too high", message));
  return add_write(peer, message, source, {Place::kPeerSlot, static_cast<std::uint16_t>(peer), target_offset}, bytes,
                   needs);
}

std::uint16_t ProgramBuilder::write_output(std::uint32_t peer, std::uint8_t message, Location source,
                                           std::uint64_t output_offset, std::uint64_t bytes,
                                           std::vector<std::uint16_t> needs) {
  return add_write(peer, message, source, {Place::kPeerOutput, static_cast<std::uint16_t>(peer), output_offset}, bytes,
                   needs);
}

std::uint16_t ProgramBuilder::invite(std::uint32_t peer) {
  return add_write(peer, kInvitationMessage, {}, {Place::kPeerSlot, static_cast<std::uint16_t>(peer), 0}, 0, {});
}

std::uint16_t ProgramBuilder::sent(std::uint16_t write_step) {
  Step step;
  step.kind = StepKind::kSent;
  step.write_step = write_step;
  step.peer = program_.steps.at(write_step).peer;
  return add(step, {write_step});
}

std::uint16_t ProgramBuilder::arrival(std::uint32_t peer, std::uint8_t message) {
  if (peer >= program_.shape.ranks || peer == program_.rank)
    refuse(program_, fmt::format("an arrival from rank {}", peer));
  Step step;
  step.kind = StepKind::kArrival;
  step.message = message;
  step.peer = static_cast<std::uint16_t>(peer);
  return add(step, {});
}

std::uint16_t ProgramBuilder::arrival_in_output(std::uint32_t peer, std::uint8_t message) {
  program_.peers_write_output = true;
  return arrival(peer, message);
}

std::uint16_t ProgramBuilder::match(std::vector<std::uint16_t> arrivals) {
  Step step;
  step.kind = StepKind::kMatch;
  return add(step, arrivals);
}

std::uint16_t ProgramBuilder::reduce(const std::vector<Location>& operands, Location target, Location second_target,
                                     std::uint64_t bytes, std::vector<std::uint16_t> needs) {
  Step step;
  step.kind = StepKind::kReduce;
  step.op = program_.shape.op;
  step.bytes = bytes;
  step.target = target;
  step.second_target = second_target;
  step.first_operand = static_cast<std::uint32_t>(program_.operands.size());
  step.operand_count = static_cast<std::uint32_t>(operands.size());
  program_.operands.insert(program_.operands.end(), operands.begin(), operands.end());
  return add(step, needs);
}

std::uint16_t ProgramBuilder::reduce_part(const std::vector<Location>& operands, Location target, std::uint64_t bytes,
                                          std::vector<std::uint16_t> needs) {
  const std::uint16_t index = reduce(operands, target, {}, bytes, std::move(needs));
  if (program_.shape.op == Op::kAverage) program_.steps[index].op = Op::kSum;
  return index;
}

std::uint16_t ProgramBuilder::release(std::uint32_t peer, std::vector<std::uint16_t> needs) {
  Step step;
  step.kind = StepKind::kRelease;
  step.peer = static_cast<std::uint16_t>(peer);
  return add(step, needs);
}

Program ProgramBuilder::finish() {
  derive_dependents(program_);
  derive_peers_and_sizes(program_);
  derive_event_steps(program_);
  return std::move(program_);
}

}  // namespace tensorwire::collective
