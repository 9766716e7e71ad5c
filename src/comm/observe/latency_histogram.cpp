#include "comm/observe/latency_histogram.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tensorwire::comm {

std::size_t LatencyHistogram::bucket_of(Ps duration) noexcept {
  constexpr std::uint64_t kLargest = (std::uint64_t{1} << kValueBits) - 1;
  const std::uint64_t units = std::min(static_cast<std::uint64_t>(std::max<Ps>(duration, 0)) >> kUnitShift, kLargest);
  const auto width = static_cast<int>(std::bit_width(units));
  if (width <= kSubBits) return units;
  const int shift = width - kSubBits - 1;
  return (static_cast<std::size_t>(shift) << kSubBits) + (units >> shift);
}

Ps LatencyHistogram::middle_of(std::size_t bucket) noexcept {
  constexpr std::size_t kSub = std::size_t{1} << kSubBits;
  const std::size_t shift = bucket < 2 * kSub ? 0 : (bucket >> kSubBits) - 1;
  const std::uint64_t lowest = (bucket - (shift << kSubBits)) << shift;
  const std::uint64_t width = std::uint64_t{1} << shift;
  return static_cast<Ps>(((lowest << 1) + width) << (kUnitShift - 1));
}

Ps LatencyHistogram::percentile(double share) const noexcept {
  std::uint64_t count = 0;
  for (const Tally& bucket : buckets_) count += bucket.get();
  if (count == 0) return 0;
  const auto rank = static_cast<std::uint64_t>(std::ceil(std::clamp(share, 0.0, 1.0) * static_cast<double>(count)));
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    seen += buckets_[bucket].get();
    if (seen >= std::max<std::uint64_t>(rank, 1)) return std::min(middle_of(bucket), max());
  }
  return max();  // a bucket was counted between the two looks
}

}  // namespace tensorwire::comm
