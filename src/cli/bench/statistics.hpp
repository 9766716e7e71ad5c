// Order statistics of latency samples. Exact: all samples are kept and sorted; no histogram rounds a tail away.
#pragma once

#include <span>
#include <vector>

#include "base/time.hpp"

namespace tensorwire::cli {

/// For tables and JSON, which speak of microseconds.
[[nodiscard]] constexpr double microseconds(Ps time) noexcept {
  return static_cast<double>(time) / static_cast<double>(kMicrosecond);
}

struct LatencySummary {
  Ps p50 = 0;
  Ps p99 = 0;
  Ps max = 0;
  Ps mean = 0;
};

/// Nearest-rank percentiles; all zero for no samples.
[[nodiscard]] LatencySummary summarise(std::vector<Ps> samples);

/// An iteration whose time does not count.
inline constexpr Ps kNoSample = -1;

/// Element-wise maximum over ranks: a collective is over when its slowest rank is done. Iterations in which any rank
/// has kNoSample are left out. Every inner vector has the same length.
[[nodiscard]] std::vector<Ps> slowest_rank(std::span<const std::vector<Ps>> samples_by_rank);

}  // namespace tensorwire::cli
