#include "cli/tune_fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace tensorwire::cli {

using collective::FabricCost;

double predicted_us(const Timed& timed, std::uint32_t ranks, const FabricCost& cost, std::uint64_t slot_payload_bytes,
                    std::uint32_t depth) {
  const collective::Shape shape{ranks, timed.bytes / 4, collective::DType::kFloat32, collective::Op::kSum};
  collective::BuildOptions build;
  build.source = collective::choose_source(shape, collective::Thresholds{}, false);
  const auto candidate = collective::price_candidate(shape, timed.algorithm, cost, slot_payload_bytes, depth, build);
  return candidate ? candidate->price.us : 0;
}

// Coordinate search: each parameter is made larger and smaller by a factor that shrinks when nothing helps any more.
// Few parameters, a smooth error, and a start within a factor of ten: no more is needed.
FabricCost fit(const std::vector<Timed>& times, std::uint32_t ranks, const FabricCost& start,
               std::uint64_t slot_payload_bytes, std::uint32_t depth) {
  constexpr double kSmallError = 0.1;
  // By the logarithm, so that twice as much is as bad as half; squared only where it is small, so that a time that the
  // rest of the machine disturbed counts as one time, not as all of them.
  const auto error_of = [&](const FabricCost& cost) {
    double sum = 0;
    for (const Timed& timed : times) {
      if (timed.held_out || timed.us <= 0) continue;
      const double ratio = predicted_us(timed, ranks, cost, slot_payload_bytes, depth) / timed.us;
      if (ratio <= 0) return 1e30;
      sum += std::hypot(std::log(ratio), kSmallError);
    }
    return sum;
  };
  constexpr std::array kFitted{&FabricCost::start_us, &FabricCost::hop_us, &FabricCost::message_us,
                               &FabricCost::arrival_us, &FabricCost::wire_bytes_per_us};
  constexpr double kLeastUs = 1e-3;
  FabricCost best = start;
  for (const auto parameter : kFitted) best.*parameter = std::max(best.*parameter, kLeastUs);
  double least = error_of(best);
  for (double factor = 2; factor > 1.005;) {
    bool better = false;
    for (const auto parameter : kFitted) {
      for (const double by : {factor, 1 / factor}) {
        FabricCost changed = best;
        changed.*parameter = std::max(changed.*parameter * by, kLeastUs);
        const double error = error_of(changed);
        if (error >= least) continue;
        least = error;
        best = changed;
        better = true;
      }
    }
    if (!better) factor = 1 + (factor - 1) / 2;
  }
  return best;
}

std::uint64_t one_shot_threshold(const std::vector<Timed>& times) {
  struct Pair {
    double one_shot = 0, two_shot = 0;
  };
  std::map<std::uint64_t, Pair> by_size;
  for (const Timed& timed : times) {
    const bool one_shot = timed.algorithm == collective::Algorithm::kOneShot;
    (one_shot ? by_size[timed.bytes].one_shot : by_size[timed.bytes].two_shot) = timed.us;
  }
  // One size that was measured badly must not decide: what counts is the sum of all that would be lost.
  const auto lost_at = [&](std::uint64_t threshold) {
    double lost = 0;
    for (const auto& [bytes, pair] : by_size) {
      lost += (bytes <= threshold ? pair.one_shot : pair.two_shot) / std::min(pair.one_shot, pair.two_shot) - 1;
    }
    return lost;
  };
  std::uint64_t best = 0;
  for (const auto& [bytes, pair] : by_size) {
    if (lost_at(bytes) < lost_at(best)) best = bytes;
  }
  return best;
}

}  // namespace tensorwire::cli
