// Parameters of the cost model from measured times. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/cost.hpp"

namespace tensorwire::cli {

/// One all-reduce that was timed.
struct Timed {
  collective::Algorithm algorithm = collective::Algorithm::kOneShot;
  std::uint64_t bytes = 0;  ///< of the tensor, fp32
  double us = 0;
  bool held_out = false;  ///< not fitted to: shows what the prediction is worth
};

/// What the model says of it.
[[nodiscard]] double predicted_us(const Timed& timed, std::uint32_t ranks, const collective::FabricCost& cost,
                                  std::uint64_t slot_payload_bytes, std::uint32_t depth);

/// The start, the hop, the work for a message and the line rate that come nearest to the times, in proportion; the rest
/// of `start` is kept as it was measured.
[[nodiscard]] collective::FabricCost fit(const std::vector<Timed>& times, std::uint32_t ranks,
                                         const collective::FabricCost& start, std::uint64_t slot_payload_bytes,
                                         std::uint32_t depth);

/// Up to which size one-shot is to be taken, so that least is lost over all sizes (in proportion).
[[nodiscard]] std::uint64_t one_shot_threshold(const std::vector<Timed>& times);

}  // namespace tensorwire::cli
