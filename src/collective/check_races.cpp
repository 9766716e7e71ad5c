#include "collective/check_races.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tensorwire::collective {

namespace {

/// Bytes that are read or written from `start` on until one of `ends` (any of them proves that it is over).
struct Access {
  std::uint64_t begin = 0, end = 0;
  bool writes = false;
  Node start = 0;
  std::array<Node, 2> ends{};
};

/// By write: its kSent, or kNoStep. Read off the steps: a program under test need not have derived what fits them.
std::vector<std::uint16_t> sent_steps_of(const Program& program) {
  std::vector<std::uint16_t> sent(program.steps.size(), kNoStep);
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    if (program.steps[i].kind == StepKind::kSent) sent[program.steps[i].write_step] = static_cast<std::uint16_t>(i);
  }
  return sent;
}

bool brings_signature(const Step& step) noexcept {
  return step.kind == StepKind::kArrival && (step.message == 0 || step.message == kInvitationMessage);
}

class Accesses {
 public:
  Accesses(const HappensBefore& graph, const MemoryMap& map) : graph_(graph), map_(map), by_region_(map.regions()) {
    for (std::uint32_t plan = 0; plan < graph.plans(); ++plan) {
      for (std::uint32_t rank = 0; rank < graph.ranks(); ++rank) collect(plan, rank);
    }
  }

  [[nodiscard]] std::vector<std::vector<Access>>& by_region() noexcept { return by_region_; }

 private:
  void add(MemoryMap::Address at, std::uint64_t bytes, bool writes, Node start, std::array<Node, 2> ends) {
    if (bytes != 0) by_region_[at.region].push_back({at.offset, at.offset + bytes, writes, start, ends});
  }
  void at_once(MemoryMap::Address at, std::uint64_t bytes, bool writes, Node node) {
    add(at, bytes, writes, node, {node, node});
  }

  void collect(std::uint32_t plan, std::uint32_t rank) {
    const Program& program = graph_.program(plan, rank);
    at_once(map_.send_header(plan, rank), kSlotHeaderBytes, true, graph_.node(plan, rank, kNoStep));
    const std::vector<std::uint16_t> sent = sent_steps_of(program);
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      const Step& step = program.steps[i];
      const Node node = graph_.node(plan, rank, static_cast<std::uint16_t>(i));
      if (step.kind == StepKind::kWrite) {
        const Node arrival = graph_.arrival_of(plan, rank, step);
        collect_write(plan, rank, step, node,
                      {arrival, sent[i] == kNoStep ? arrival : graph_.node(plan, rank, sent[i])});
        continue;
      }
      if (step.kind == StepKind::kMatch) {
        for (const std::uint16_t need : program.needs_of(step)) {
          if (program.steps[need].kind != StepKind::kArrival) continue;
          at_once(map_.header_from(plan, rank, program.steps[need].peer), kSlotHeaderBytes, false, node);
        }
      }
      if (step.kind == StepKind::kCopy) at_once(map_.address(plan, rank, step.source), step.bytes, false, node);
      for (const Location& operand : program.operands_of(step)) {
        at_once(map_.address(plan, rank, operand), step.bytes, false, node);
      }
      for (const Location& target : {step.target, step.second_target}) {
        if (target.place != Place::kNone) at_once(map_.address(plan, rank, target), step.bytes, true, node);
      }
    }
  }

  /// The network reads the source until the peer has it (what it may read after that, the peer drops as a duplicate),
  /// and writes the target at any time until the peer is told.
  void collect_write(std::uint32_t plan, std::uint32_t rank, const Step& step, Node node, std::array<Node, 2> ends) {
    if (step.with_signature) {
      const MemoryMap::Address header = map_.header_source(plan, rank, step);
      if (graph_.is_opening(plan, rank, step)) at_once(header, kSlotHeaderBytes, true, node);
      add(header, kSlotHeaderBytes, false, node, ends);
      add(map_.header_target(plan, rank, step), kSlotHeaderBytes, true, node, {ends[0], ends[0]});
    }
    if (step.target.place == Place::kPeerOutput) {
      at_once(map_.header_from(plan, rank, step.peer), kSlotHeaderBytes, false, node);  // where that output is
    }
    if (step.bytes == 0) return;
    add(map_.address(plan, rank, step.source), step.bytes, false, node, ends);
    add(map_.target(plan, rank, step), step.bytes, true, node, {ends[0], ends[0]});
  }

  const HappensBefore& graph_;
  const MemoryMap& map_;
  std::vector<std::vector<Access>> by_region_;
};

/// Two accesses to the same bytes, and the answers that would order them.
struct Conflict {
  Access first, second;  ///< `first` starts first in the order of the graph
  std::size_t query = 0;
  std::size_t queries = 0;
};

Verdict describe(const HappensBefore& graph, const Conflict& conflict) {
  const Access& first = conflict.first;
  const Access& second = conflict.second;
  if (first.start == second.start) {
    return counter_example(graph, first.start, "it writes a part of what it reads");
  }
  const auto who = [&](const Access& access) {
    const NodeName name = graph.name(access.start);
    const std::string step = name.step == kNoStep ? "the begin" : fmt::format("step {}", name.step);
    return graph.plans() == 1 ? fmt::format("{} of rank {}", step, name.rank)
                              : fmt::format("{} of rank {} in plan {}", step, name.rank, name.plan);
  };
  if (first.writes && second.writes) {
    return counter_example(graph, second.start,
                           fmt::format("{} writes the same bytes, and nothing orders the two", who(first)),
                           {first.start});
  }
  if (first.writes) {
    return counter_example(graph, second.start, fmt::format("it reads what {} may not have written yet", who(first)),
                           {first.start});
  }
  return counter_example(graph, second.start, fmt::format("it overwrites what {} may not have read yet", who(first)),
                         {first.start});
}

class RuleCheck {
 public:
  explicit RuleCheck(const HappensBefore& graph) : graph_(graph) {}

  std::optional<Verdict> find() {
    for (std::uint32_t plan = 0; plan < graph_.plans(); ++plan) {
      for (std::uint32_t rank = 0; rank < graph_.ranks(); ++rank) {
        if (auto verdict = check_program(plan, rank)) return verdict;
      }
    }
    const std::vector<bool> holds = graph_.precede(queries_);
    for (std::size_t i = 0; i < holds.size(); ++i) {
      if (!holds[i]) return counter_example(graph_, queries_[i].second, reasons_[i], {queries_[i].first});
    }
    return std::nullopt;
  }

 private:
  void require(Node before, Node after, const char* reason) {
    queries_.emplace_back(before, after);
    reasons_.push_back(reason);
  }

  std::optional<Verdict> check_program(std::uint32_t plan, std::uint32_t rank) {
    const Program& program = graph_.program(plan, rank);
    const auto at = [&](std::size_t step) { return graph_.node(plan, rank, static_cast<std::uint16_t>(step)); };
    std::vector<std::uint16_t> match_of(graph_.ranks(), kNoStep);
    std::vector<std::uint16_t> release_of(graph_.ranks(), kNoStep);
    const std::vector<std::uint16_t> sent = sent_steps_of(program);
    std::vector<std::uint32_t> senders;
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      const Step& step = program.steps[i];
      if (step.kind == StepKind::kRelease) release_of[step.peer] = static_cast<std::uint16_t>(i);
      if (brings_signature(step)) senders.push_back(step.peer);
      if (step.kind != StepKind::kMatch) continue;
      for (const std::uint16_t need : program.needs_of(step)) {
        const Step& arrival = program.steps[need];
        if (!brings_signature(arrival)) {
          return counter_example(graph_, at(i), fmt::format("no signature came with step {}", need), {at(need)});
        }
        match_of[arrival.peer] = static_cast<std::uint16_t>(i);
      }
    }
    for (const std::uint32_t sender : senders) {
      if (match_of[sender] == kNoStep) {
        return counter_example(graph_, at(release_of[sender]),
                               fmt::format("the signature of rank {} is never looked at", sender));
      }
    }
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      const Step& step = program.steps[i];
      check_release(program, i, release_of, at);
      const bool from_user = step.source.place == Place::kInput || step.source.place == Place::kOutput;
      if (step.kind == StepKind::kWrite && from_user && step.bytes != 0 && sent[i] == kNoStep) {
        return counter_example(graph_, at(i),
                               "user memory may still be read when the operation is over: "
                               "nothing waits until this is sent");
      }
      if (step.kind == StepKind::kWrite && step.source.place == Place::kPeerSlot && step.bytes != 0) {
        const std::uint16_t release = step.source.peer < release_of.size() ? release_of[step.source.peer] : kNoStep;
        if (sent[i] == kNoStep || release == kNoStep) {
          return counter_example(
              graph_, at(i), "the slot may be overwritten while it is still read: nothing waits until this is sent");
        }
        require(at(sent[i]), at(release), "the slot is given back while a write may still read it");
      }
      const bool to_user = step.target.place == Place::kOutput || step.second_target.place == Place::kOutput;
      if (to_user && step.bytes != 0) {
        for (const std::uint32_t sender : senders) {
          if (sender != senders.front() && match_of[sender] == match_of[senders.front()]) continue;
          require(at(match_of[sender]), at(i), "it may write user memory before the signatures matched");
        }
      }
      if (step.kind == StepKind::kWrite && step.target.place == Place::kPeerOutput) {
        if (match_of[step.peer] == kNoStep) {
          return counter_example(graph_, at(i), fmt::format("rank {} never told where its output is", step.peer));
        }
        require(at(match_of[step.peer]), at(i), "it may write a peer's user memory before the signatures matched");
      }
    }
    return std::nullopt;
  }

  /// A slot is given back after all of it came, and after everything that looks into it.
  template <class NodeOf>
  void check_release(const Program& program, std::size_t index, const std::vector<std::uint16_t>& release_of,
                     const NodeOf& at) {
    const Step& step = program.steps[index];
    const auto release_after = [&](std::uint32_t peer, const char* reason) {
      if (peer < release_of.size() && release_of[peer] != kNoStep) require(at(index), at(release_of[peer]), reason);
    };
    if (step.kind == StepKind::kArrival) release_after(step.peer, "the slot is given back before all of it came");
    if (step.source.place == Place::kPeerSlot) {
      release_after(step.source.peer, "the slot is given back before it was read");
    }
    if (step.target.place == Place::kPeerOutput) {
      release_after(step.peer, "the slot is given back before it was read where the peer's output is");
    }
    for (const Location& operand : program.operands_of(step)) {
      if (operand.place == Place::kPeerSlot) release_after(operand.peer, "the slot is given back before it was read");
    }
    if (step.kind != StepKind::kMatch) return;
    for (const std::uint16_t need : program.needs_of(step)) {
      release_after(program.steps[need].peer, "the slot is given back before its signature was looked at");
    }
  }

  const HappensBefore& graph_;
  std::vector<std::pair<Node, Node>> queries_;
  std::vector<const char*> reasons_;
};

}  // namespace

std::optional<Verdict> find_race(const HappensBefore& graph, const MemoryMap& map) {
  Accesses accesses{graph, map};
  std::vector<Conflict> conflicts;
  std::vector<std::pair<Node, Node>> queries;
  for (std::vector<Access>& region : accesses.by_region()) {
    if (std::ranges::none_of(region, &Access::writes)) continue;
    std::ranges::sort(region, {}, [](const Access& access) { return std::pair{access.begin, access.start}; });
    for (std::size_t i = 0; i < region.size(); ++i) {
      for (std::size_t k = i + 1; k < region.size() && region[k].begin < region[i].end; ++k) {
        if (!region[i].writes && !region[k].writes) continue;
        Conflict conflict{region[i], region[k], queries.size(), 0};
        if (graph.position(conflict.first.start) > graph.position(conflict.second.start)) {
          std::swap(conflict.first, conflict.second);
        }
        if (conflict.first.start == conflict.second.start) {
          // One step may write exactly what it reads: in place.
          const bool same = region[i].begin == region[k].begin && region[i].end == region[k].end;
          if (same && region[i].writes != region[k].writes) continue;
          return describe(graph, conflict);
        }
        for (const Node end : conflict.first.ends) queries.emplace_back(end, conflict.second.start);
        conflict.queries = conflict.first.ends.size();
        conflicts.push_back(conflict);
      }
    }
  }
  const std::vector<bool> precedes = graph.precede(queries);
  for (const Conflict& conflict : conflicts) {
    bool ordered = false;
    for (std::size_t q = 0; q < conflict.queries; ++q) ordered = ordered || precedes[conflict.query + q];
    if (!ordered) return describe(graph, conflict);
  }
  return std::nullopt;
}

std::optional<Verdict> find_broken_rule(const HappensBefore& graph) { return RuleCheck{graph}.find(); }

}  // namespace tensorwire::collective
