// The one place that reads the machine's monotonic clock. Rooms that must be deterministic (wire, transport,
// collective, fabric) never include this header: they are given the time.
#pragma once

#include "base/time.hpp"

namespace tensorwire {

/// Monotonic time since the first call in this process, in picoseconds.
[[nodiscard]] Ps monotonic_now() noexcept;

/// Gives the CPU away for so long, at least 1 ns and below a second; a signal ends it sooner.
void nap(Ps duration) noexcept;

/// CPU time (user + system) that this process has used, in picoseconds.
[[nodiscard]] Ps process_cpu_time() noexcept;

}  // namespace tensorwire
