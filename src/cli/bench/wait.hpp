// How the bare exchanges wait for bytes: by the communicator's own policy, so that no path wins by burning more CPU.
#pragma once

#include <sched.h>

#include <cstdint>

#include "comm/wait_policy.hpp"

namespace tensorwire::cli {

class Waiter {
 public:
  explicit Waiter(comm::WaitPolicy policy) noexcept : patience_(polls_before_yield(policy)) {}

  /// Call when something came: the next wait begins anew.
  void reset() noexcept { empty_polls_ = 0; }
  /// Call after each empty poll.
  void idle() noexcept {
    if (++empty_polls_ > patience_) sched_yield();
  }

 private:
  static std::uint32_t polls_before_yield(comm::WaitPolicy policy) noexcept {
    switch (policy) {
      case comm::WaitPolicy::kSpin:
        return ~0U;
      case comm::WaitPolicy::kSpinThenYield:
        return 1000;
      default:
        return 20;
    }
  }

  std::uint32_t patience_;
  std::uint32_t empty_polls_ = 0;
};

}  // namespace tensorwire::cli
