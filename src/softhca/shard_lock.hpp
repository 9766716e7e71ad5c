// The one lock of a shard. Progress only ever tries it; set-up calls wait for it. Waiters go first: while one waits,
// try_lock() fails, so that a polling application cannot starve ibv_dereg_mr of another thread.
//
// All operations are sequentially consistent on purpose: "leave a doorbell, fail to lock" and "unlock, look for
// doorbells" are the two halves of a Dekker handshake, and neither may miss the other.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "base/clock.hpp"

namespace tensorwire::softhca {

class ShardLock {
 public:
  [[nodiscard]] bool try_lock() noexcept {
    if (waiters_.load() != 0) return false;
    return !held_.exchange(true);
  }

  void lock() noexcept {
    waiters_.fetch_add(1);
    for (std::uint32_t attempt = 0; held_.exchange(true); ++attempt) back_off(attempt);
    waiters_.fetch_sub(1);
  }

  void unlock() noexcept { held_.store(false); }

 private:
  /// A pass lasts microseconds, so yielding almost always suffices; sleeping is for a holder that lost its CPU.
  static void back_off(std::uint32_t attempt) noexcept {
    if (attempt < 64) {
      sched_yield();
      return;
    }
    nap(50 * kMicrosecond);
  }

  alignas(64) std::atomic<bool> held_{false};
  std::atomic<std::uint32_t> waiters_{0};
};

}  // namespace tensorwire::softhca
