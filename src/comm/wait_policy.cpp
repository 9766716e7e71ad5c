#include "comm/wait_policy.hpp"

#include <sched.h>

#include <algorithm>

#include "comm/link.hpp"

namespace tensorwire::comm {

namespace {

// A poll that finds nothing costs some 50 to 100 ns: up to 100 us of polling before the core is given away.
constexpr std::uint32_t kSpinsBeforeYield = 1'000;
// With fewer cores than ranks the peer that we wait for may be waiting for this very core: hardly spin, give the core
// away a few times (two system calls and a wake-up are dearer than that), then sleep.
constexpr std::uint32_t kSpinsBeforeGivingWay = 20;
constexpr std::uint32_t kYieldsBeforeBlock = 100;
constexpr Ps kBlockBound = 5 * kMillisecond;

void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

std::string_view name_of(WaitPolicy policy) noexcept {
  switch (policy) {
    case WaitPolicy::kAuto:
      return "auto";
    case WaitPolicy::kSpin:
      return "spin";
    case WaitPolicy::kSpinThenYield:
      return "spin-then-yield";
    case WaitPolicy::kBlock:
      return "block";
  }
  return "unknown policy";
}

WaitPolicy choose_wait_policy(unsigned cores, unsigned local_ranks) noexcept {
  // The HCA's engine thread, where there is one, wants a core too now and then: spinning on every core starves it.
  if (cores > local_ranks) return WaitPolicy::kSpin;
  return cores == local_ranks ? WaitPolicy::kSpinThenYield : WaitPolicy::kBlock;
}

unsigned usable_cores() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
}

void Waiter::pause() noexcept {
  ++idle_polls_;
  switch (policy_) {
    case WaitPolicy::kSpinThenYield:
      if (idle_polls_ > kSpinsBeforeYield) {
        sched_yield();
        return;
      }
      break;
    case WaitPolicy::kBlock:
      if (idle_polls_ > kSpinsBeforeGivingWay + kYieldsBeforeBlock) {
        link_->wait(kBlockBound);
        return;
      }
      if (idle_polls_ > kSpinsBeforeGivingWay) {
        sched_yield();
        return;
      }
      break;
    case WaitPolicy::kAuto:
    case WaitPolicy::kSpin:
      break;
  }
  relax();
}

}  // namespace tensorwire::comm
