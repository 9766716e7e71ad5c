// Durations counted in fixed buckets: 16 to each power of two, so a percentile is at most 3.2 % off, from 1 ns to 18
// minutes. One thread adds, any thread reads; nothing allocates. Zeroed memory is an empty histogram.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.hpp"
#include "comm/observe/tally.hpp"

namespace tensorwire::comm {

class LatencyHistogram {
 public:
  void add(Ps duration) noexcept {
    buckets_[bucket_of(duration)].add(1);
    total_.add(static_cast<std::uint64_t>(duration > 0 ? duration : 0));
    max_.raise_to(static_cast<std::uint64_t>(duration > 0 ? duration : 0));
  }

  /// The duration that `share` (0 to 1) of all are not longer than, by nearest rank; 0 when there are none.
  [[nodiscard]] Ps percentile(double share) const noexcept;
  [[nodiscard]] Ps total() const noexcept { return static_cast<Ps>(total_.get()); }
  [[nodiscard]] Ps max() const noexcept { return static_cast<Ps>(max_.get()); }

 private:
  // Units of 1024 ps, nearly a nanosecond: a shift where a division would do.
  static constexpr int kUnitShift = 10;
  static constexpr int kSubBits = 4;
  static constexpr int kValueBits = 40;
  static constexpr std::size_t kBuckets = (kValueBits - kSubBits + 1) << kSubBits;

  [[nodiscard]] static std::size_t bucket_of(Ps duration) noexcept;
  /// The middle of what falls into the bucket.
  [[nodiscard]] static Ps middle_of(std::size_t bucket) noexcept;

  std::array<Tally, kBuckets> buckets_;
  Tally total_, max_;
};

}  // namespace tensorwire::comm
