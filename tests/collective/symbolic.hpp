// Runs the programs of a plan on symbols instead of bytes: each element of memory holds the list of ranks whose
// contributions were added into it, in order. Shows that every rank ends with every contribution exactly once.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "collective/plan.hpp"

namespace tensorwire::collective {

class SymbolicRun {
 public:
  using Symbol = std::vector<std::uint32_t>;  ///< ranks, in order of summation; empty: never written

  explicit SymbolicRun(const Plan& plan) : plan_(plan) {
    const Shape& shape = plan.programs[0].shape;
    for (const Program& program : plan.programs) {
      Rank rank;
      rank.pending = program.pending;
      const std::size_t slot_elements = program.slot_payload_bytes / element_bytes(shape.dtype);
      rank.input.assign(shape.count, {program.rank});
      rank.output.resize(shape.count);
      rank.send_slot.resize(slot_elements);
      rank.peer_slots.assign(shape.ranks, std::vector<Symbol>(slot_elements));
      ranks_.push_back(std::move(rank));
    }
  }

  /// Executes everything that can be; false (with the reason in problem()) when a step reads what was not written, or
  /// not all steps ran.
  bool run() {
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t i = 0; i < ranks_[r].pending.size(); ++i) {
        if (ranks_[r].pending[i] == 0) ready_.push_back({r, static_cast<std::uint16_t>(i)});
      }
    }
    while (!ready_.empty() && problem_.empty()) {
      const auto [r, step] = ready_.front();
      ready_.pop_front();
      execute(r, step);
      ++ranks_[r].done;
      for (const std::uint16_t next : program(r).dependents_of(program(r).steps[step])) satisfy(r, next);
    }
    for (std::uint32_t r = 0; r < ranks_.size() && problem_.empty(); ++r) {
      if (ranks_[r].done != program(r).steps.size()) problem_ = "rank " + std::to_string(r) + " is stuck";
    }
    return problem_.empty();
  }

  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] const std::vector<Symbol>& output(std::uint32_t rank) const { return ranks_[rank].output; }

 private:
  struct Rank {
    std::vector<std::uint16_t> pending;
    std::vector<Symbol> input, output, send_slot;
    std::vector<std::vector<Symbol>> peer_slots;
    bool matched = false;
    std::size_t done = 0;
  };

  const Program& program(std::uint32_t rank) const { return plan_.programs[rank]; }

  void satisfy(std::uint32_t rank, std::uint16_t step) {
    if (--ranks_[rank].pending[step] == 0) ready_.push_back({rank, step});
  }

  std::vector<Symbol>& memory(std::uint32_t rank, const Location& location) {
    switch (location.place) {
      case Place::kInput:
        return ranks_[rank].input;
      case Place::kOutput:
        return ranks_[rank].output;
      case Place::kSendSlot:
        return ranks_[rank].send_slot;
      default:
        return ranks_[rank].peer_slots[location.peer];
    }
  }

  Symbol read(std::uint32_t rank, const Location& location, std::size_t element) {
    const std::size_t at = location.offset / element_bytes(plan_.programs[0].shape.dtype) + element;
    const std::vector<Symbol>& from = memory(rank, location);
    if (at >= from.size() || from[at].empty()) {
      problem_ = "rank " + std::to_string(rank) + " reads what was never written";
      return {};
    }
    return from[at];
  }

  void write(std::uint32_t rank, const Location& location, std::size_t element, const Symbol& symbol) {
    if (location.place == Place::kOutput && !ranks_[rank].matched && ranks_.size() > 1) {
      problem_ = "rank " + std::to_string(rank) + " writes user memory before the signatures matched";
    }
    const std::size_t at = location.offset / element_bytes(plan_.programs[0].shape.dtype) + element;
    std::vector<Symbol>& to = memory(rank, location);
    if (at >= to.size()) {
      problem_ = "rank " + std::to_string(rank) + " writes outside";
      return;
    }
    to[at] = symbol;
  }

  void execute(std::uint32_t rank, std::uint16_t index) {
    const Step& step = program(rank).steps[index];
    const std::size_t elements = step.bytes / element_bytes(program(rank).shape.dtype);
    switch (step.kind) {
      case StepKind::kCopy:
        for (std::size_t i = 0; i < elements; ++i) write(rank, step.target, i, read(rank, step.source, i));
        break;
      case StepKind::kWrite: {
        const Location there{Place::kPeerSlot, static_cast<std::uint16_t>(rank), step.target.offset};
        for (std::size_t i = 0; i < elements; ++i) write(step.peer, there, i, read(rank, step.source, i));
        const Program& peer = program(step.peer);
        const std::size_t entry = std::size_t{rank} * peer.messages + step.message;
        if (entry >= peer.arrival_steps.size() || peer.arrival_steps[entry] == kNoStep) {
          problem_ = "rank " + std::to_string(step.peer) + " does not await a message of rank " + std::to_string(rank);
          return;
        }
        satisfy(step.peer, peer.arrival_steps[entry]);
        if (program(rank).sent_steps[index] != kNoStep) satisfy(rank, program(rank).sent_steps[index]);
        break;
      }
      case StepKind::kMatch:
        ranks_[rank].matched = true;
        break;
      case StepKind::kReduce:
        for (std::size_t i = 0; i < elements; ++i) {
          Symbol sum;
          for (const Location& operand : program(rank).operands_of(step)) {
            const Symbol part = read(rank, operand, i);
            sum.insert(sum.end(), part.begin(), part.end());
          }
          write(rank, step.target, i, sum);
          if (step.second_target.place != Place::kNone) write(rank, step.second_target, i, sum);
        }
        break;
      default:
        break;
    }
  }

  const Plan& plan_;
  std::vector<Rank> ranks_;
  std::deque<std::pair<std::uint32_t, std::uint16_t>> ready_;
  std::string problem_;
};

}  // namespace tensorwire::collective
