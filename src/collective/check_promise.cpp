#include "collective/check_promise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tensorwire::collective {

namespace {

/// All-to-all: the elements that `from` sends to `to` in this segment, and where their blocks begin.
struct Block {
  std::uint64_t count = 0;
  std::uint64_t input_begin = 0, output_begin = 0;  ///< elements
};

Block block_of(const Shape& shape, const BuildOptions& build, std::uint32_t from, std::uint32_t to) {
  const std::uint64_t stride = build.block_stride == 0 ? shape.count : build.block_stride;
  if (build.counts.empty()) return {shape.count, to * stride, from * stride};
  const auto count = [&](std::uint32_t i, std::uint32_t j) { return build.counts[std::size_t{i} * shape.ranks + j]; };
  Block block;
  for (std::uint32_t r = 0; r < to; ++r) block.input_begin += count(from, r);
  for (std::uint32_t r = 0; r < from; ++r) block.output_begin += count(r, to);
  const std::uint64_t whole = count(from, to);
  block.count = whole <= build.segment_first ? 0 : std::min(shape.count, whole - build.segment_first);
  return block;
}

/// Whether the sum is added up as the algorithm says.
class Bracketing {
 public:
  Bracketing(const Expressions& expressions, std::uint32_t plan) : expressions_(expressions), plan_(plan) {}

  [[nodiscard]] bool holds(const Program& program, Expression sum) const {
    if (program.shape.ranks == 1) return true;
    switch (program.algorithm) {
      case Algorithm::kRing:
        return is_ring(sum);
      case Algorithm::kHierarchical:
        return is_grouped(sum, program.group_ranks, program.shape.ranks);
      default:
        return is_run(sum, 0, program.shape.ranks);
    }
  }

 private:
  /// x[first] + ... + x[last - 1], added in one go.
  [[nodiscard]] bool is_run(Expression sum, std::uint32_t first, std::uint32_t last) const {
    const auto terms = expressions_.terms(sum);
    if (terms.empty()) return last == first + 1 && is_contribution(sum, first);
    if (terms.size() != last - first) return false;
    for (std::uint32_t i = 0; i < terms.size(); ++i) {
      if (!is_contribution(terms[i].expression, first + i)) return false;
    }
    return true;
  }
  /// ((x[c+1] + x[c+2]) + ...) + x[c] around the ring.
  [[nodiscard]] bool is_ring(Expression sum) const {
    const std::vector<std::uint32_t> order = expressions_.leaves(sum, plan_).ranks;
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (order[i] != (order[i - 1] + 1) % order.size()) return false;
    }
    for (; expressions_.is_sum(sum); sum = expressions_.terms(sum)[0].expression) {
      const auto terms = expressions_.terms(sum);
      if (terms.size() != 2 || expressions_.is_sum(terms[1].expression)) return false;
    }
    return true;
  }
  /// The sums of the groups, each in rank order, in the order of the groups.
  [[nodiscard]] bool is_grouped(Expression sum, std::uint32_t group, std::uint32_t ranks) const {
    const auto terms = expressions_.terms(sum);
    // One group: its sum, which an average then divides.
    if (group >= ranks && terms.size() == 1) return is_run(terms[0].expression, 0, ranks);
    if (group == 1 || group >= ranks) return is_run(sum, 0, ranks);
    if (terms.size() != (ranks + group - 1) / group) return false;
    for (std::uint32_t g = 0; g < terms.size(); ++g) {
      if (!is_run(terms[g].expression, g * group, std::min(ranks, (g + 1) * group))) return false;
    }
    return true;
  }
  [[nodiscard]] bool is_contribution(Expression expression, std::uint32_t rank) const {
    return !expressions_.is_sum(expression) && expressions_.leaves(expression, plan_).ranks[0] == rank;
  }

  const Expressions& expressions_;
  std::uint32_t plan_;
};

/// What is wrong with a range that was promised; empty for nothing.
std::string fault_of(const Expressions& expressions, const Program& program, std::uint32_t plan, const Promise& promise,
                     const Region::Range& range) {
  const auto leaves = expressions.leaves(range.value.expression, plan);
  const bool at_its_place =
      leaves.aligned && range.value.base == static_cast<std::int64_t>(promise.source + (range.begin - promise.begin));
  if (!promise.is_sum) {
    if (leaves.ranks == std::vector{promise.from} && at_its_place) return {};
    return fmt::format("holds {} instead of what rank {} has at byte {}", expressions.text(range.value.expression),
                       promise.from, promise.source);
  }
  std::vector<std::uint32_t> sorted = leaves.ranks;
  std::ranges::sort(sorted);
  std::vector<std::uint32_t> everyone(program.shape.ranks);
  std::iota(everyone.begin(), everyone.end(), 0U);
  if (sorted != everyone) {
    return fmt::format("is {}: not every rank's contribution once", expressions.text(range.value.expression));
  }
  if (!at_its_place) {
    return fmt::format("is {}, taken from another place of the tensor", expressions.text(range.value.expression));
  }
  if (program.shape.ranks > 1 && !expressions.is_made_by(program.shape.op, range.value.expression)) {
    return fmt::format("is {}: that is no {}", expressions.text(range.value.expression), name_of(program.shape.op));
  }
  if (!Bracketing{expressions, plan}.holds(program, range.value.expression)) {
    return fmt::format("is {}: not in the order that {} promises", expressions.text(range.value.expression),
                       name_of(program.algorithm));
  }
  return {};
}

Verdict broken(std::uint32_t plan, std::uint32_t rank, std::string what) {
  return {plan, rank, kNoStep, std::move(what), {}};
}

std::optional<Verdict> check_output(const HappensBefore& graph, SymbolicExecution& run, const CheckOptions& options,
                                    std::uint32_t plan, std::uint32_t rank) {
  const Program& program = graph.program(plan, rank);
  const auto ranges = run.output(plan, rank);
  std::uint64_t promised = 0;
  for (const Promise& promise : promises(program.shape, options.build, rank)) {
    promised += promise.end - promise.begin;
    std::uint64_t done = promise.begin;
    auto at = std::ranges::upper_bound(ranges, done, {}, &Region::Range::end);
    for (; done < promise.end && at != ranges.end() && at->begin <= done; ++at) {
      const Region::Range part{done, std::min(at->end, promise.end), at->value.at(done - at->begin)};
      const std::string fault = fault_of(run.expressions(), program, plan, promise, part);
      if (!fault.empty()) {
        return broken(plan, rank, fmt::format("bytes [{}, {}) of its output: {}", part.begin, part.end, fault));
      }
      done = part.end;
    }
    if (done < promise.end) return broken(plan, rank, fmt::format("byte {} of its output is never written", done));
  }
  std::uint64_t written = 0;
  for (const Region::Range& range : ranges) written += range.end - range.begin;
  if (!options.in_place && written != promised) {
    return broken(plan, rank, "it writes to bytes of its output that no rank's contribution belongs to");
  }
  return std::nullopt;
}

/// The same bits everywhere: one bracketing on all ranks.
std::optional<Verdict> check_agreement(const HappensBefore& graph, SymbolicExecution& run, std::uint32_t plan) {
  const auto first = run.output(plan, 0);
  for (std::uint32_t rank = 1; rank < graph.ranks(); ++rank) {
    const auto own = run.output(plan, rank);
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (i < first.size() && own[i].end == first[i].end && own[i].value == first[i].value) continue;
      return broken(plan, rank,
                    fmt::format("byte {} of its output: it is {}, but {} on rank 0", own[i].begin,
                                run.expressions().text(own[i].value.expression),
                                i < first.size() ? run.expressions().text(first[i].value.expression) : ""));
    }
  }
  return std::nullopt;
}

/// A barrier: nobody is through before everybody has begun.
std::optional<Verdict> check_barrier(const HappensBefore& graph, std::uint32_t plan) {
  std::vector<std::pair<Node, Node>> queries;
  for (std::uint32_t rank = 0; rank < graph.ranks(); ++rank) {
    const Program& program = graph.program(plan, rank);
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      if (program.steps[i].kind != StepKind::kArrival) continue;
      for (std::uint32_t other = 0; other < graph.ranks(); ++other) {
        queries.emplace_back(graph.node(plan, other, kNoStep), graph.node(plan, rank, static_cast<std::uint16_t>(i)));
      }
    }
  }
  const std::vector<bool> answers = graph.precede(queries);
  std::vector<bool> waits_for(std::size_t{graph.ranks()} * graph.ranks());
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const std::size_t rank = graph.name(queries[i].second).rank;
    if (answers[i]) waits_for[rank * graph.ranks() + graph.name(queries[i].first).rank] = true;
  }
  for (std::uint32_t rank = 0; rank < graph.ranks(); ++rank) {
    for (std::uint32_t other = 0; other < graph.ranks(); ++other) {
      if (rank == other || waits_for[std::size_t{rank} * graph.ranks() + other]) continue;
      return broken(plan, rank, fmt::format("it may leave the barrier before rank {} has come", other));
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Verdict> find_broken_promise(const HappensBefore& graph, SymbolicExecution& run,
                                           const CheckOptions& options) {
  for (std::uint32_t plan = 0; plan < graph.plans(); ++plan) {
    for (std::uint32_t rank = 0; rank < graph.ranks(); ++rank) {
      if (auto verdict = check_output(graph, run, options, plan, rank)) return verdict;
    }
    const Collective collective = graph.program(plan, 0).shape.collective;
    std::optional<Verdict> verdict;
    if (collective == Collective::kAllReduce) verdict = check_agreement(graph, run, plan);
    if (collective == Collective::kBarrier) verdict = check_barrier(graph, plan);
    if (verdict) return verdict;
  }
  return std::nullopt;
}

UserTensor user_tensor(const Shape& shape, const BuildOptions& build, std::uint32_t rank, bool output) {
  const std::uint64_t element = element_bytes(shape.dtype);
  const std::uint64_t stride = (build.block_stride == 0 ? shape.count : build.block_stride) * element;
  const std::uint64_t blocks = shape.count == 0 ? 0 : (shape.ranks - 1) * stride + shape.bytes();
  switch (shape.collective) {
    case Collective::kAllReduce:
    case Collective::kBroadcast:
      return {shape.bytes(), 0};
    case Collective::kReduceScatter:
      return output ? UserTensor{shape.bytes(), rank * stride} : UserTensor{blocks, 0};
    case Collective::kAllGather:
      return output ? UserTensor{blocks, 0} : UserTensor{shape.bytes(), rank * stride};
    case Collective::kAllToAll: {
      std::uint64_t end = 0;
      for (std::uint32_t peer = 0; peer < shape.ranks; ++peer) {
        const Block block = output ? block_of(shape, build, peer, rank) : block_of(shape, build, rank, peer);
        if (block.count != 0) end = std::max(end, (output ? block.output_begin : block.input_begin) + block.count);
      }
      return {end * element, 0};
    }
    case Collective::kSendRecv:
      return {rank == (output ? shape.peer : shape.root) ? shape.bytes() : 0, 0};
    case Collective::kBarrier:
      break;
  }
  return {};
}

std::vector<Promise> promises(const Shape& shape, const BuildOptions& build, std::uint32_t rank) {
  const std::uint64_t element = element_bytes(shape.dtype);
  const std::uint64_t stride = (build.block_stride == 0 ? shape.count : build.block_stride) * element;
  std::vector<Promise> all;
  switch (shape.collective) {
    case Collective::kAllReduce:
      return {{0, shape.bytes(), 0, true, 0}};
    case Collective::kReduceScatter:
      return {{0, shape.bytes(), rank * stride, true, 0}};
    case Collective::kBroadcast:
      return {{0, shape.bytes(), 0, false, shape.root}};
    case Collective::kSendRecv:
      if (rank == shape.peer) all.push_back({0, shape.bytes(), 0, false, shape.root});
      return all;
    case Collective::kAllGather:
      for (std::uint32_t from = 0; from < shape.ranks; ++from) {
        all.push_back({from * stride, from * stride + shape.bytes(), 0, false, from});
      }
      return all;
    case Collective::kAllToAll:
      for (std::uint32_t from = 0; from < shape.ranks; ++from) {
        const Block block = block_of(shape, build, from, rank);
        all.push_back({block.output_begin * element, (block.output_begin + block.count) * element,
                       block.input_begin * element, false, from});
      }
      return all;
    case Collective::kBarrier:
      break;
  }
  return all;
}

}  // namespace tensorwire::collective
