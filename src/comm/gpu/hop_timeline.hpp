// Where the time of operations by a proxy went, hop by hop, on one clock. Pure functions of the moments that kernels
// (by the GPU's clock) and the proxy (by the host's) wrote down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "comm/observe/output_name.hpp"

namespace tensorwire::comm {

/// Of one round, in nanoseconds.
struct Hops {
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;  ///< of the operation
  // By the GPU's clock.
  std::uint64_t begun_ns = 0;     ///< the kernel begins to fill the window
  std::uint64_t rung_ns = 0;      ///< the doorbell is stored
  std::uint64_t released_ns = 0;  ///< the release word is seen
  std::uint64_t taken_ns = 0;     ///< the results are out of the window
  // By the host's monotonic clock.
  std::uint64_t seen_ns = 0;     ///< the proxy sees the doorbell
  std::uint64_t carried_ns = 0;  ///< the collective is over, and the release word is stored
};

/// host = GPU + ns, give or take.
struct ClockOffset {
  std::int64_t ns = 0;
  std::uint64_t within_ns = 0;
};

/// From the rounds themselves: no doorbell is seen before it is stored, no release word either. Nothing: there are no
/// rounds, or they contradict each other.
[[nodiscard]] std::optional<ClockOffset> clock_offset(std::span<const Hops> rounds);

/// As Perfetto and chrome://tracing read it, and `tensorwire trace timeline`.
[[nodiscard]] std::string timeline_json(const Identity& who, std::uint32_t rail, std::span<const Hops> rounds,
                                        const ClockOffset& offset);

}  // namespace tensorwire::comm
