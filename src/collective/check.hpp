// Proves a plan, or a sequence of plans, before a byte moves. For every interleaving that the runner and the network
// can produce:
//   - each rank ends with what the collective promises, each contribution once, in the promised bracketing;
//   - no memory is overwritten before it was read, nor read before it was written (slots of earlier sequences
//   included);
//   - user memory is written only after the signatures matched, and is not needed any more at completion;
//   - it ends: every wait has a source, and steps, arrivals, credit and the caller's own order form no circle.
//
// Pure functions. How: docs/collectives.md, "Proving a plan".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collective/builders.hpp"

namespace tensorwire::collective {

/// What the plans will run on; as RunnerConfig.
struct CheckOptions {
  std::uint32_t depth = 2;
  std::uint32_t send_slots = 2;
  std::uint64_t slot_payload_bytes = ~std::uint64_t{0};  ///< plans that need more are refused
  bool in_place = false;                                 ///< input and output share memory, as the collective allows it
  BuildOptions build;  ///< what the plans were built with: how blocks lie, how ranks are grouped
};

/// `proved`, or the first counter-example found.
struct Verdict {
  std::uint32_t plan = 0;  ///< index in the sequence
  std::uint32_t rank = 0;
  std::uint16_t step = kNoStep;    ///< kNoStep: not one step's fault
  std::string what;                ///< one line; empty: proved
  std::vector<std::string> trace;  ///< the steps that take part, one line each

  [[nodiscard]] bool proved() const noexcept { return what.empty(); }
};

/// "proved", or "rank 2, step 17: ..." and the trace on lines of their own.
[[nodiscard]] std::string to_string(const Verdict& verdict);

[[nodiscard]] Verdict check(const Plan& plan, const CheckOptions& options = {});

/// Plans that all ranks run one after another, as far as slots and credit let them overlap. All have the same ranks.
[[nodiscard]] Verdict check(std::span<const Plan* const> sequence, const CheckOptions& options = {});

/// What stands where in the output of `rank` once the plan is through, in words: byte ranges and the bracketing of the
/// sum, read off the plan itself. The plan must be proved.
struct ResultRange {
  std::uint64_t begin = 0, end = 0;  ///< bytes
  std::string value;                 ///< "((x1 + x2) + x0)", where x1 is rank 1's contribution
};
[[nodiscard]] std::vector<ResultRange> results_of(const Plan& plan, std::uint32_t rank,
                                                  const CheckOptions& options = {});

}  // namespace tensorwire::collective
