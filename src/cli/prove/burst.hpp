// Sends bursts between ranks through the library, one after another around the ring of ranks, and watches the counters
// of the interface that they leave through.
#pragma once

#include <cstdint>

#include "bootstrap/group.hpp"
#include "cli/prove/evidence.hpp"
#include "verbs/context.hpp"

namespace tensorwire::cli {

struct BurstPlan {
  std::uint32_t dscp = 26;
  std::uint64_t bytes = 0;  ///< of each burst
  Ps idle = 0;              ///< how long the idle rate is measured
};

/// A collective call. @return what this rank saw: a burst of each rank to the next one
/// @throws Error
[[nodiscard]] Evidence send_bursts(bootstrap::Group& group, const verbs::Context& device, const BurstPlan& plan);

}  // namespace tensorwire::cli
