// What must hold before a graph of a plan means anything: needs, peers and messages that exist, each message awaited
// where it is sent and sent where it is awaited, each slot given back exactly once.
#include <fmt/format.h>

#include "collective/check_graph.hpp"

namespace tensorwire::collective {

namespace {

Verdict refusal(std::uint32_t plan, std::uint32_t rank, std::size_t step, std::string what) {
  return {plan, rank, static_cast<std::uint16_t>(step), std::move(what), {}};
}

/// What is wrong with a step by itself; empty for nothing.
std::string fault_of(const Program& program, std::size_t index) {
  const Step& step = program.steps[index];
  const std::uint32_t ranks = program.shape.ranks;
  if (std::size_t{step.first_need} + step.need_count > program.needs.size()) return "its needs lie outside";
  if (std::size_t{step.first_operand} + step.operand_count > program.operands.size()) return "its operands lie outside";
  for (const std::uint16_t need : program.needs_of(step)) {
    if (need >= index) return fmt::format("it needs step {}, which is not an earlier one", need);
  }
  const bool has_peer =
      step.kind == StepKind::kWrite || step.kind == StepKind::kArrival || step.kind == StepKind::kRelease;
  if (has_peer && (step.peer >= ranks || step.peer == program.rank)) return fmt::format("rank {} as peer", step.peer);
  const bool has_message = step.kind == StepKind::kWrite || step.kind == StepKind::kArrival;
  if (has_message && step.message >= kMessageNumbers) return fmt::format("message number {} is too high", step.message);
  const bool names = step.message == 0 || step.message == kInvitationMessage;
  if (step.kind == StepKind::kWrite && step.with_signature != names) {
    return "message 0 and an invitation, and no other, carry the signature";
  }
  if (step.kind == StepKind::kWrite && step.message == kInvitationMessage && step.bytes != 0) {
    return "an invitation is a header alone";
  }
  if (step.kind == StepKind::kSent &&
      (step.write_step >= index || program.steps[step.write_step].kind != StepKind::kWrite)) {
    return fmt::format("it waits for the acknowledgement of step {}, which is no earlier write", step.write_step);
  }
  return {};
}

}  // namespace

std::optional<Verdict> HappensBefore::malformed() const {
  for (std::uint32_t plan = 0; plan < plans(); ++plan) {
    if (sequence_[plan]->programs.size() != ranks_) return refusal(plan, 0, kNoStep, "the plans differ in their ranks");
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      const Program& own = program(plan, rank);
      if (own.rank != rank || own.shape.ranks != ranks_) {
        return refusal(plan, rank, kNoStep, "its program is for another rank, or another number of ranks");
      }
      if (own.steps.size() >= kNoStep) return refusal(plan, rank, kNoStep, "its program has too many steps");
      for (std::size_t i = 0; i < own.steps.size(); ++i) {
        if (std::string fault = fault_of(own, i); !fault.empty()) return refusal(plan, rank, i, std::move(fault));
      }
    }
  }
  return std::nullopt;
}

std::optional<Verdict> HappensBefore::pair_up() {
  arrival_steps_.assign(first_.size() - 1, std::vector<std::uint16_t>(std::size_t{ranks_} * kMessageNumbers, kNoStep));
  release_steps_.assign((first_.size() - 1) * ranks_, kNoStep);
  pair_sequence_.assign((first_.size() - 1) * ranks_, 0);
  invitation_number_ = pair_sequence_;
  for (std::uint32_t plan = 0; plan < plans(); ++plan) {
    if (auto verdict = index_waits(plan)) return verdict;
    if (auto verdict = match_messages(plan)) return verdict;
  }
  for (std::uint32_t from = 0; from < ranks_; ++from) {
    for (std::uint32_t to = 0; to < ranks_; ++to) {
      std::uint32_t next = 0;
      for (std::uint32_t plan = 0; plan < plans(); ++plan) {
        const std::size_t program_of_to = std::size_t{plan} * ranks_ + to;
        pair_sequence_[(std::size_t{plan} * ranks_ + from) * ranks_ + to] = next;
        if (release_steps_[program_of_to * ranks_ + from] != kNoStep) ++next;
      }
      next = 0;
      for (std::uint32_t plan = 0; plan < plans(); ++plan) {
        invitation_number_[(std::size_t{plan} * ranks_ + from) * ranks_ + to] = next;
        if (is_invited(plan, to, from)) ++next;
      }
    }
  }
  return std::nullopt;
}

std::optional<Verdict> HappensBefore::index_waits(std::uint32_t plan) {
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    const Program& own = program(plan, rank);
    const std::size_t at = std::size_t{plan} * ranks_ + rank;
    for (std::size_t i = 0; i < own.steps.size(); ++i) {
      const Step& step = own.steps[i];
      if (step.kind == StepKind::kArrival) {
        std::uint16_t& entry = arrival_steps_[at][std::size_t{step.peer} * kMessageNumbers + step.message];
        if (entry != kNoStep) return refusal(plan, rank, i, fmt::format("step {} awaits this message too", entry));
        entry = static_cast<std::uint16_t>(i);
      }
      if (step.kind == StepKind::kRelease) {
        std::uint16_t& entry = release_steps_[at * ranks_ + step.peer];
        if (entry != kNoStep) return refusal(plan, rank, i, fmt::format("step {} gives this slot back too", entry));
        entry = static_cast<std::uint16_t>(i);
      }
    }
  }
  return std::nullopt;
}

std::optional<Verdict> HappensBefore::match_messages(std::uint32_t plan) const {
  std::vector<std::vector<bool>> sent(ranks_, std::vector<bool>(std::size_t{ranks_} * kMessageNumbers));
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    const Program& own = program(plan, rank);
    for (std::size_t i = 0; i < own.steps.size(); ++i) {
      const Step& step = own.steps[i];
      if (step.kind != StepKind::kWrite) continue;
      const std::size_t entry = std::size_t{rank} * kMessageNumbers + step.message;
      if (sent[step.peer][entry]) return refusal(plan, rank, i, "this message is sent twice");
      sent[step.peer][entry] = true;
      if (arrival_steps_[std::size_t{plan} * ranks_ + step.peer][entry] == kNoStep) {
        return refusal(plan, rank, i, fmt::format("rank {} does not await message {}", step.peer, step.message));
      }
    }
  }
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    const std::size_t at = std::size_t{plan} * ranks_ + rank;
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      bool receives = false;
      for (std::uint32_t message = 0; message < kMessageNumbers; ++message) {
        const std::size_t entry = std::size_t{peer} * kMessageNumbers + message;
        const std::uint16_t arrival = arrival_steps_[at][entry];
        if (arrival == kNoStep) continue;
        if (!sent[rank][entry]) return refusal(plan, rank, arrival, fmt::format("rank {} never sends this", peer));
        if (message == kInvitationMessage) continue;  // it takes no slot
        receives = true;
        if (!sent[rank][std::size_t{peer} * kMessageNumbers]) {
          return refusal(plan, rank, arrival, fmt::format("rank {} never sends its signature", peer));
        }
      }
      const std::uint16_t release = release_steps_[at * ranks_ + peer];
      if (receives && release == kNoStep) {
        return refusal(plan, rank, kNoStep, fmt::format("the slot of rank {} is never given back", peer));
      }
      if (!receives && release != kNoStep) {
        return refusal(plan, rank, release, "nothing came in the slot that is given back");
      }
    }
  }
  return std::nullopt;
}

}  // namespace tensorwire::collective
