// How a GPU's clock, by which the journal counts, reads on the host's: a kernel of one thread answers questions of the
// host through pinned memory, and the quickest of several answers is taken, half way between question and answer. Owns
// its memory and a stream; any thread, one at a time.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "base/time.hpp"
#include "cuda/job.hpp"
#include "cuda/pinned_memory.hpp"

namespace tensorwire::cuda {

/// What both clocks showed at one moment.
struct ClockReading {
  std::uint64_t gpu_ns = 0;
  Ps host = 0;   ///< monotonic_now()
  Ps error = 0;  ///< at most so far apart

  [[nodiscard]] constexpr Ps on_host(std::uint64_t ns) const noexcept {
    return host + static_cast<Ps>(static_cast<std::int64_t>(ns - gpu_ns)) * kNanosecond;
  }
};

class GpuClock {
 public:
  /// Of the current GPU. @throws Error
  GpuClock();
  ~GpuClock();
  GpuClock(const GpuClock&) = delete;
  GpuClock& operator=(const GpuClock&) = delete;

  /// A reading that is not older than a quarter of a second, where the GPU lets the kernel run within some
  /// milliseconds; else the last one. Nothing: there never was one. The GPU must be current.
  [[nodiscard]] std::optional<ClockReading> read() noexcept;

 private:
  [[nodiscard]] std::optional<ClockReading> measure() noexcept;

  PinnedMemory memory_;
  Stream stream_ = nullptr;
  std::mutex mutex_;  ///< guards what follows, and the memory
  std::optional<ClockReading> last_;
};

}  // namespace tensorwire::cuda
