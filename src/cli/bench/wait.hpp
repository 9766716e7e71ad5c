// How a rank waits for bytes: the same rule for every path of a benchmark, so that no path wins by burning more CPU.
// With a core for each local rank it spins; with fewer it gives its core away after a short spin.
#pragma once

#include <sched.h>

#include <cstdint>

#include "base/clock.hpp"
#include "base/time.hpp"

namespace tensorwire::cli {

class Waiter {
 public:
  /// `spins` empty polls before each yield.
  explicit constexpr Waiter(std::uint32_t spins) noexcept : spins_(spins) {}

  /// Call after each empty poll.
  void idle() noexcept {
    if (++empty_polls_ % spins_ == 0) sched_yield();
  }

 private:
  std::uint32_t spins_;
  std::uint32_t empty_polls_ = 0;
};

}  // namespace tensorwire::cli
