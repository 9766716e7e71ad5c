#include "collective/check_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tensorwire::collective {

namespace {

/// The steps that no other step of the program needs: when they are done, all are.
std::vector<std::uint16_t> last_steps(const Program& program) {
  std::vector<bool> needed(program.steps.size());
  for (const Step& step : program.steps) {
    for (const std::uint16_t need : program.needs_of(step)) needed[need] = true;
  }
  std::vector<std::uint16_t> last;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i]) last.push_back(static_cast<std::uint16_t>(i));
  }
  return last;
}

/// Sets of a program's steps as rows of bits.
class StepSets {
 public:
  /// Row i: the steps that must be done before step i, and itself.
  explicit StepSets(const Program& program) : words_((program.steps.size() + 63) / 64) {
    bits_.assign(words_ * program.steps.size(), 0);
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      std::uint64_t* row = bits_.data() + i * words_;
      row[i / 64] |= std::uint64_t{1} << (i % 64);
      for (const std::uint16_t need : program.needs_of(program.steps[i])) {
        const std::uint64_t* earlier = bits_.data() + need * words_;
        for (std::size_t w = 0; w < words_; ++w) row[w] |= earlier[w];
      }
    }
  }
  [[nodiscard]] bool contains(std::uint16_t row, std::uint16_t step) const noexcept {
    return (bits_[row * words_ + step / 64] >> (step % 64) & 1) != 0;
  }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

}  // namespace

HappensBefore::HappensBefore(std::span<const Plan* const> sequence, const CheckOptions& options)
    : sequence_(sequence.begin(), sequence.end()), options_(options) {
  ranks_ = sequence.empty() ? 0 : static_cast<std::uint32_t>(sequence[0]->programs.size());
  first_.push_back(0);
  for (const Plan* plan : sequence_) {
    for (const Program& program : plan->programs) {
      first_.push_back(first_.back() + 1 + static_cast<Node>(program.steps.size()));
    }
  }
}

NodeName HappensBefore::name(Node node) const noexcept {
  const auto at = std::upper_bound(first_.begin(), first_.end(), node) - first_.begin() - 1;
  const auto index = static_cast<std::uint32_t>(at);
  const std::uint32_t step = node - first_[index];
  return {index / ranks_, index % ranks_, step == 0 ? kNoStep : static_cast<std::uint16_t>(step - 1)};
}

Node HappensBefore::arrival_of(std::uint32_t plan, std::uint32_t rank, const Step& write) const noexcept {
  const auto& awaited = arrival_steps_[std::size_t{plan} * ranks_ + write.peer];
  return node(plan, write.peer, awaited[std::size_t{rank} * kMessageNumbers + write.message]);
}

std::optional<Verdict> HappensBefore::order() {
  for (std::uint32_t plan = 0; plan < plans(); ++plan) {
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) connect_steps(plan, rank);
  }
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    connect_begins(rank);
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      if (peer == rank) continue;
      connect_credit(rank, peer);
      connect_invitations(rank, peer);
    }
  }
  return sort();
}

/// Needs, arrivals of one's own writes at the peers, and nothing before the begin but what may go ahead of it.
void HappensBefore::connect_steps(std::uint32_t plan, std::uint32_t rank) {
  const Program& own = program(plan, rank);
  for (std::size_t i = 0; i < own.steps.size(); ++i) {
    const Step& step = own.steps[i];
    const Node here = node(plan, rank, static_cast<std::uint16_t>(i));
    for (const std::uint16_t need : own.needs_of(step)) edges_.emplace_back(node(plan, rank, need), here);
    if (step.need_count == 0 && !is_opening(plan, rank, step)) edges_.emplace_back(node(plan, rank, kNoStep), here);
    if (step.kind == StepKind::kWrite) edges_.emplace_back(here, arrival_of(plan, rank, step));
    if (step.kind == StepKind::kSent) {
      // An acknowledgement says that the peer's memory has it.
      edges_.emplace_back(node(plan, rank, step.write_step), here);
    }
  }
}

/// A write may go out when its sequence is inside of the pair's window: all sequences up to `depth` before were given
/// back. What is given back in another order counts only when those before it are.
void HappensBefore::connect_credit(std::uint32_t from, std::uint32_t to) {
  std::vector<Node> given_back;  // by sequence of the pair
  for (std::uint32_t plan = 0; plan < plans(); ++plan) {
    const std::uint16_t release = release_steps_[(std::size_t{plan} * ranks_ + to) * ranks_ + from];
    if (release == kNoStep) continue;
    const std::size_t sequence = given_back.size();
    given_back.push_back(node(plan, to, release));
    if (sequence < options_.depth) continue;
    const Program& writer = program(plan, from);
    for (std::size_t i = 0; i < writer.steps.size(); ++i) {
      if (writer.steps[i].kind != StepKind::kWrite || writer.steps[i].peer != to) continue;
      for (std::size_t s = 0; s + options_.depth <= sequence; ++s) {
        edges_.emplace_back(given_back[s], node(plan, from, static_cast<std::uint16_t>(i)));
      }
    }
  }
}

/// A rank has `depth` invitations of a peer open at most: what those before were for is through.
void HappensBefore::connect_invitations(std::uint32_t from, std::uint32_t to) {
  std::vector<std::uint32_t> inviting;  // plans, by number
  for (std::uint32_t plan = 0; plan < plans(); ++plan) {
    if (!is_invited(plan, to, from)) continue;
    const Program& own = program(plan, from);
    for (std::size_t i = 0; i < own.steps.size(); ++i) {
      if (own.steps[i].kind != StepKind::kWrite || own.steps[i].message != kInvitationMessage) continue;
      for (std::size_t earlier = 0; earlier + options_.depth <= inviting.size(); ++earlier) {
        for (const std::uint16_t last : last_steps(program(inviting[earlier], from))) {
          edges_.emplace_back(node(inviting[earlier], from, last), node(plan, from, static_cast<std::uint16_t>(i)));
        }
      }
    }
    inviting.push_back(plan);
  }
}

/// Plans begin in order; the send slot of the one `send_slots` before must be free: that plan is through on this rank,
/// and its peers have consumed what came from it.
void HappensBefore::connect_begins(std::uint32_t rank) {
  for (std::uint32_t plan = 0; plan + 1 < plans(); ++plan) {
    edges_.emplace_back(node(plan, rank, kNoStep), node(plan + 1, rank, kNoStep));
    const std::vector<std::uint16_t> last = last_steps(program(plan, rank));
    for (const std::uint16_t step : last) {
      callers_order_.emplace_back(node(plan, rank, step), node(plan + 1, rank, kNoStep));
    }
    if (plan + options_.send_slots >= plans()) continue;
    const Node next = node(plan + options_.send_slots, rank, kNoStep);
    for (const std::uint16_t step : last) edges_.emplace_back(node(plan, rank, step), next);
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      const auto release_at = [&](std::uint32_t of) {
        return release_steps_[(std::size_t{of} * ranks_ + peer) * ranks_ + rank];
      };
      if (release_at(plan) == kNoStep) continue;
      for (std::uint32_t earlier = 0; earlier <= plan; ++earlier) {
        if (release_at(earlier) != kNoStep) edges_.emplace_back(node(earlier, peer, release_at(earlier)), next);
      }
    }
  }
}

std::optional<Verdict> HappensBefore::sort() {
  const Node count = first_.back();
  std::vector<std::uint32_t> waits(count, 0);
  std::vector<std::uint32_t> first_after(count + 1, 0);
  first_before_.assign(count + 1, 0);
  for (const auto& [from, to] : edges_) ++first_before_[to + 1];
  for (Node n = 0; n < count; ++n) first_before_[n + 1] += first_before_[n];
  before_.resize(edges_.size());
  std::vector<std::uint32_t> fill(first_before_.begin(), first_before_.end() - 1);
  for (const auto& [from, to] : edges_) before_[fill[to]++] = from;

  for (const auto* edges : {&edges_, &callers_order_}) {
    for (const auto& [from, to] : *edges) {
      ++waits[to];
      ++first_after[from + 1];
    }
  }
  for (Node n = 0; n < count; ++n) first_after[n + 1] += first_after[n];
  std::vector<Node> after(edges_.size() + callers_order_.size());
  fill.assign(first_after.begin(), first_after.end() - 1);
  for (const auto* edges : {&edges_, &callers_order_}) {
    for (const auto& [from, to] : *edges) after[fill[from]++] = to;
  }

  ordered_.clear();
  ordered_.reserve(count);
  for (Node n = 0; n < count; ++n) {
    if (waits[n] == 0) ordered_.push_back(n);
  }
  for (std::size_t at = 0; at < ordered_.size(); ++at) {
    const Node n = ordered_[at];
    for (std::uint32_t i = first_after[n]; i < first_after[n + 1]; ++i) {
      if (--waits[after[i]] == 0) ordered_.push_back(after[i]);
    }
  }
  if (ordered_.size() != count) return circle(waits);
  position_.resize(count);
  for (std::uint32_t at = 0; at < count; ++at) position_[ordered_[at]] = at;
  return std::nullopt;
}

Verdict HappensBefore::circle(const std::vector<std::uint32_t>& waits) const {
  const Node count = first_.back();
  std::vector<Node> waits_for(count, count);
  for (const auto* edges : {&edges_, &callers_order_}) {
    for (const auto& [from, to] : *edges) {
      if (waits[from] != 0) waits_for[to] = from;
    }
  }
  const auto stuck = std::ranges::find_if(waits, [](std::uint32_t left) { return left != 0; });
  auto at = static_cast<Node>(stuck - waits.begin());
  for (Node steps = 0; steps < count; ++steps) at = waits_for[at];  // by now inside of the circle
  Verdict verdict = counter_example(*this, at, "it never ends: what it waits for waits for it");
  Node next = at;
  do {
    verdict.trace.push_back("waits for " + line_of(*this, next = waits_for[next]));
  } while (next != at);
  return verdict;
}

std::vector<bool> HappensBefore::precede(std::span<const std::pair<Node, Node>> pairs) const {
  std::vector<bool> answers(pairs.size());
  std::vector<std::optional<StepSets>> local(first_.size() - 1);
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto [from, to] = pairs[i];
    if (from == to) {
      answers[i] = true;
      continue;
    }
    if (position_[from] > position_[to]) continue;
    const NodeName a = name(from);
    const NodeName b = name(to);
    if (a.plan == b.plan && a.rank == b.rank) {
      auto& sets = local[std::size_t{a.plan} * ranks_ + a.rank];
      if (!sets) sets.emplace(program(a.plan, a.rank));
      answers[i] = a.step == kNoStep || sets->contains(b.step, a.step);
      if (answers[i]) continue;
    }
    open.push_back(i);
  }
  // The rest goes by way of other ranks: bits travel through the whole graph, one for each of the nodes asked about.
  std::ranges::sort(open, {}, [&](std::size_t i) { return position_[pairs[i].first]; });
  constexpr std::size_t kWords = 8;
  std::vector<std::array<std::uint64_t, kWords>> reached;
  for (std::size_t begin = 0; begin < open.size();) {
    std::size_t end = begin;
    std::size_t bits = 0;
    std::uint32_t last = 0;
    std::vector<std::size_t> bit_of;
    for (; end < open.size(); ++end) {
      const bool same = end > begin && pairs[open[end]].first == pairs[open[end - 1]].first;
      if (!same && bits == kWords * 64) break;
      if (!same) ++bits;
      bit_of.push_back(bits - 1);
      last = std::max(last, position_[pairs[open[end]].second]);
    }
    const std::uint32_t lowest = position_[pairs[open[begin]].first];
    reached.assign(last - lowest + 1, {});
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t bit = bit_of[i - begin];
      reached[position_[pairs[open[i]].first] - lowest][bit / 64] |= std::uint64_t{1} << (bit % 64);
    }
    for (std::uint32_t at = lowest; at <= last; ++at) {
      auto& here = reached[at - lowest];
      const Node n = ordered_[at];
      for (std::uint32_t i = first_before_[n]; i < first_before_[n + 1]; ++i) {
        const std::uint32_t earlier = position_[before_[i]];
        if (earlier < lowest) continue;
        for (std::size_t w = 0; w < kWords; ++w) here[w] |= reached[earlier - lowest][w];
      }
    }
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t bit = bit_of[i - begin];
      answers[open[i]] = (reached[position_[pairs[open[i]].second] - lowest][bit / 64] >> (bit % 64) & 1) != 0;
    }
    begin = end;
  }
  return answers;
}

std::string line_of(const HappensBefore& graph, Node node) {
  const NodeName name = graph.name(node);
  const std::string of_plan = graph.plans() > 1 ? fmt::format(" of plan {}", name.plan) : "";
  if (name.step == kNoStep) return fmt::format("rank {}, the begin{}", name.rank, of_plan);
  return fmt::format("rank {}, step {}{}: {}", name.rank, name.step, of_plan,
                     to_string(graph.program(name.plan, name.rank), name.step));
}

Verdict counter_example(const HappensBefore& graph, Node at, std::string what, std::initializer_list<Node> trace) {
  const NodeName name = graph.name(at);
  Verdict verdict{name.plan, name.rank, name.step, std::move(what), {}};
  verdict.trace.push_back(line_of(graph, at));
  for (const Node other : trace) verdict.trace.push_back(line_of(graph, other));
  return verdict;
}

}  // namespace tensorwire::collective
