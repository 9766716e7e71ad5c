#include "cli/bench/statistics.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace tensorwire::cli {

namespace {

Ps nearest_rank(const std::vector<Ps>& sorted, std::size_t percent) {
  const std::size_t rank = (sorted.size() * percent + 99) / 100;
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

}  // namespace

LatencySummary summarise(std::vector<Ps> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const Ps sum = std::accumulate(samples.begin(), samples.end(), Ps{0});
  return {nearest_rank(samples, 50), nearest_rank(samples, 99), samples.back(), sum / static_cast<Ps>(samples.size())};
}

std::vector<Ps> slowest_rank(std::span<const std::vector<Ps>> samples_by_rank) {
  std::vector<Ps> slowest;
  if (samples_by_rank.empty()) return slowest;
  for (std::size_t i = 0; i < samples_by_rank.front().size(); ++i) {
    Ps latest = 0;
    bool counts = true;
    for (const std::vector<Ps>& samples : samples_by_rank) {
      counts = counts && samples[i] != kNoSample;
      latest = std::max(latest, samples[i]);
    }
    if (counts) slowest.push_back(latest);
  }
  return slowest;
}

}  // namespace tensorwire::cli
