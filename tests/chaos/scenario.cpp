#include "chaos/scenario.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/random.hpp"

namespace tensorwire::chaos {

namespace {

/// How often each trouble comes, in percent.
constexpr std::array<std::pair<Trouble, std::uint32_t>, 8> kShares{{{Trouble::kNone, 8},
                                                                    {Trouble::kSlow, 10},
                                                                    {Trouble::kPause, 13},
                                                                    {Trouble::kStop, 17},
                                                                    {Trouble::kKill, 22},
                                                                    {Trouble::kAbort, 9},
                                                                    {Trouble::kForsake, 8},
                                                                    {Trouble::kDisagree, 13}}};

constexpr std::array kFaults{"drop=1%", "drop=0.5%,dup=2%,reorder=2%", "late_dma=200us,drop=1%,opcode=ACK",
                             "corrupt=1%,delay=1%:200us"};

constexpr std::array kNames{"nothing", "slow", "paused", "stopped", "killed", "aborts", "forsaken", "disagrees"};

Trouble draw_trouble(Random& random) {
  std::uint32_t at = random.below(100);
  for (const auto& [trouble, share] : kShares) {
    if (at < share) return trouble;
    at -= share;
  }
  return Trouble::kNone;
}

std::vector<int> shuffled(Random& random) {
  std::vector<int> order;
  for (int i = 0; i < kRanks; ++i) order.push_back(i);
  for (std::uint32_t i = kRanks - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  return order;
}

void draw_guilty(Scenario& round, Random& random) {
  if (round.trouble == Trouble::kNone) return;
  const std::size_t wanted = round.trouble == Trouble::kKill && random.below(4) == 0 ? 2 : 1;
  for (const int rank : shuffled(random)) {
    const bool protects = round.trouble == Trouble::kKill && round.process_of[static_cast<std::size_t>(rank)] == 0;
    if (round.guilty.size() < wanted && !protects) round.guilty.push_back(rank);
  }
  std::ranges::sort(round.guilty);
}

/// Lossy packets: of nobody, of one rank, or of all.
void draw_faults(Scenario& round, Random& random) {
  round.faults.resize(kRanks);
  const std::uint32_t kind = random.below(10);
  if (kind >= 4) return;
  const std::uint32_t only = random.below(kRanks);
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const std::string faults = kFaults[random.below(kFaults.size())];
    if (kind == 0 || rank == only) round.faults[rank] = fmt::format("{},seed={}", faults, random.below(1'000'000));
  }
}

}  // namespace

bool Scenario::is_guilty(int rank) const noexcept { return std::ranges::find(guilty, rank) != guilty.end(); }

std::vector<int> Scenario::survivors() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (!is_fatal() || !is_guilty(rank)) ranks.push_back(rank);
  }
  return ranks;
}

Scenario scenario(std::uint64_t seed, std::uint64_t round) {
  Random random{mix64(seed) + mix64(round + 1)};
  Scenario result;
  result.seed = random.next();
  result.trouble = draw_trouble(random);
  result.process_of = shuffled(random);
  draw_guilty(result, random);
  draw_faults(result, random);
  result.packets = random.below(2) == 0;
  result.windows = random.below(2) == 0;
  result.operation = static_cast<int>(random.below(12));
  result.delay_us = static_cast<int>(random.below(2'000));
  result.operations = 12 + static_cast<int>(random.below(12));
  switch (result.trouble) {
    case Trouble::kPause:
      result.pause_ms = 20 + static_cast<int>(random.below(200));
      break;
    case Trouble::kSlow:
      result.pause_ms = 1 + static_cast<int>(random.below(30));
      break;
    default:
      break;
  }
  result.bound_ms = result.trouble == Trouble::kStop ? 500 * TENSORWIRE_TIMEOUT_FACTOR : 8'000;
  return result;
}

std::string to_string(const Scenario& round) {
  std::string text = kNames[static_cast<std::size_t>(round.trouble)];
  if (!round.guilty.empty()) text += fmt::format(" rank {}", fmt::join(round.guilty, ", "));
  if (round.trouble != Trouble::kNone) text += fmt::format(" at operation {}", round.operation);
  if (round.trouble >= Trouble::kPause && round.trouble != Trouble::kDisagree)
    text += fmt::format(" + {} us", round.delay_us);
  if (round.pause_ms != 0) text += fmt::format(", {} ms", round.pause_ms);
  text += fmt::format("; processes {}{}{}", fmt::join(round.process_of, " "), round.packets ? ", packets" : "",
                      round.windows ? ", windows" : "");
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string& faults = round.faults[static_cast<std::size_t>(rank)];
    if (!faults.empty()) text += fmt::format("; rank {}: {}", rank, faults);
  }
  return text;
}

}  // namespace tensorwire::chaos
