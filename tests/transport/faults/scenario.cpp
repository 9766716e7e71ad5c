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

/// A rate at which packets take a while, and a floor that one comes to.
void Scenario::choose_congestion(Random& random) {
  const std::uint64_t line_rate = std::uint64_t{10'000'000'000} << random.below(4);
  engine.dcqcn = random.below(2) == 0 ? dcqcn_paper(line_rate) : dcqcn_nic(line_rate);
  if (random.below(2) == 0) engine.dcqcn.min_rate = line_rate / (2 + random.below(20));
  if (random.below(2) == 0) engine.dcqcn.cnp_interval = (1 + random.below(50)) * kMicrosecond;
  if (random.below(2) == 0) engine.dcqcn.increase_bytes = 1'000 + random.below(100'000);
  mark = 5'000 + random.below(300'000);
}

void Scenario::choose_features(Random& random) {
  shared = random.below(3) == 0;
  if (random.below(3) == 0) families = kFamilies;
  if (random.below(3) == 0) datagrams = 2 + random.below(5);
  credits = random.below(3) == 0;
  if (random.below(4) == 0) choose_congestion(random);
  if (random.below(8) == 0) cq_entries = 1 + random.below(40);
}

}  // namespace tensorwire::transport::faults
