#include "scenario.hpp"

#include <bit>

namespace tensorwire::transport::faults {
namespace {

constexpr std::uint32_t kMinFaults = 3;
constexpr std::uint32_t kMaxFaults = 7;

std::uint32_t choose_faults(Random& random) {
  const auto wanted = static_cast<int>(kMinFaults + random.below(kMaxFaults - kMinFaults + 1));
  std::uint32_t chosen = 0;
  while (std::popcount(chosen) < wanted) chosen |= 1U << random.below(static_cast<std::uint32_t>(Fault::kCount));
  return chosen;
}

}  // namespace

Scenario::Scenario(Random& random) : faults(choose_faults(random)) {
  hosts = random.below(4) == 0 ? 3 + random.below(2) : 2;
  connections = 2 + random.below(2) + (hosts > 2 ? 1 : 0);
  whole = random.below(10) == 0;
  engine.seed = random.next();
  engine.ack_request_every = 1 + random.below(20);
  engine.ack_coalesce = 1 + random.below(20);
  engine.qp_window_bytes = 1ULL << (9 + random.below(12));
  path_window = 1ULL << (10 + random.below(11));
  delay = (1 + random.below(5)) * kMicrosecond;
  const auto rate = [&](Fault fault, std::uint32_t least, std::uint32_t most) {
    const std::uint32_t drawn = least + random.below(most - least);
    return has(fault) ? drawn : 0U;
  };
  if (has(Fault::kJitter)) jitter = random.below(30) * kMicrosecond;
  lose = rate(Fault::kLose, 2'000, 100'000);
  duplicate = rate(Fault::kDuplicate, 2'000, 100'000);
  reorder = rate(Fault::kReorder, 2'000, 60'000);
  replay = rate(Fault::kReplay, 2'000, 40'000);
  corrupt = rate(Fault::kCorrupt, 2'000, 100'000);
  defect = rate(Fault::kDefect, 5'000, 80'000);
  disturb = 1'000 + random.below(8'000);
  eager = 100'000 + random.below(600'000);
}

}  // namespace tensorwire::transport::faults
