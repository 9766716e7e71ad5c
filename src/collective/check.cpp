#include "collective/check.hpp"

#include <fmt/format.h>

#include "collective/check_promise.hpp"
#include "collective/check_races.hpp"

namespace tensorwire::collective {

// A plan is a graph of steps without choices, so it is enough that (1) the graph is sound and has no circle, (2) the
// steps, run once in any order that the graph allows, give what was promised, and (3) no two accesses to the same bytes
// are left unordered: then every other order gives the same.
Verdict check(std::span<const Plan* const> sequence, const CheckOptions& options) {
  if (sequence.empty() || sequence[0]->programs.empty()) return {};
  HappensBefore graph{sequence, options};
  if (auto verdict = graph.malformed()) return *verdict;
  if (auto verdict = graph.pair_up()) return *verdict;
  if (auto verdict = graph.order()) return *verdict;
  if (auto verdict = find_broken_rule(graph)) return *verdict;
  const MemoryMap map{graph, options};
  SymbolicExecution run{graph, map};
  if (auto verdict = run.run()) return *verdict;
  if (auto verdict = find_broken_promise(graph, run, options)) return *verdict;
  return find_race(graph, map).value_or(Verdict{});
}

Verdict check(const Plan& plan, const CheckOptions& options) {
  const Plan* const alone = &plan;
  return check(std::span{&alone, 1}, options);
}

std::string to_string(const Verdict& verdict) {
  if (verdict.proved()) return "proved";
  std::string text = fmt::format("rank {}", verdict.rank);
  if (verdict.step != kNoStep) text += fmt::format(", step {}", verdict.step);
  text += ": " + verdict.what;
  for (const std::string& line : verdict.trace) text += "\n  " + line;
  return text;
}

std::vector<ResultRange> results_of(const Plan& plan, std::uint32_t rank, const CheckOptions& options) {
  const Plan* const alone = &plan;
  HappensBefore graph{std::span{&alone, 1}, options};
  if (graph.malformed() || graph.pair_up() || graph.order()) return {};
  const MemoryMap map{graph, options};
  SymbolicExecution run{graph, map};
  if (run.run()) return {};
  std::vector<ResultRange> results;
  for (const Region::Range& range : run.output(0, rank)) {
    results.push_back({range.begin, range.end, run.expressions().text(range.value.expression)});
  }
  return results;
}

}  // namespace tensorwire::collective
