#include "base/clock.hpp"

#include <ctime>

namespace tensorwire {

namespace {

std::int64_t nanoseconds(clockid_t clock) noexcept {
  timespec ts{};
  clock_gettime(clock, &ts);
  return std::int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

}  // namespace

Ps monotonic_now() noexcept {
  static const std::int64_t origin = nanoseconds(CLOCK_MONOTONIC);
  return (nanoseconds(CLOCK_MONOTONIC) - origin) * kNanosecond;
}

void nap(Ps duration) noexcept {
  const timespec time{.tv_sec = 0, .tv_nsec = static_cast<long>(duration / kNanosecond)};
  nanosleep(&time, nullptr);
}

Ps process_cpu_time() noexcept { return nanoseconds(CLOCK_PROCESS_CPUTIME_ID) * kNanosecond; }

}  // namespace tensorwire
