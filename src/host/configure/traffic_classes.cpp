#include "host/configure/traffic_classes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tensorwire::host {
namespace {

using Map = std::array<std::uint8_t, kPriorities>;

constexpr unsigned kWhole = 100;

template <class Of>
std::string pairs(const char* keyword, Of of) {
  std::string text = keyword;
  for (unsigned i = 0; i < kPriorities; ++i) text += fmt::format(" {}:{}", i, of(i));
  return text;
}

template <class Of>
std::string list(Of of) {
  std::string text;
  for (unsigned i = 0; i < kPriorities; ++i) text += fmt::format("{}{}", i == 0 ? "" : ",", of(i));
  return text;
}

bool is_alone(const Map& map, unsigned priority) { return std::ranges::count(map, map[priority]) == 1; }

/// With fewer classes than priorities all that is neither data nor CNP shares the first.
Map separate(unsigned class_count, unsigned priority, unsigned cnp_priority) {
  Map map{};
  for (unsigned p = 0; p < kPriorities && class_count >= kPriorities; ++p) map[p] = static_cast<std::uint8_t>(p);
  if (class_count >= kPriorities) return map;
  if (class_count >= 3) map[cnp_priority] = 2;
  if (class_count >= 2) map[priority] = 1;
  return map;
}

/// Classes of priorities that are neither lossless nor those of CNPs alone.
std::vector<unsigned> other_classes(const Map& map, const Wanted& wanted, unsigned cnp_priority) {
  std::vector<unsigned> others;
  for (unsigned tc = 0; tc < kPriorities; ++tc) {
    const bool is_cnps = map[cnp_priority] == tc && is_alone(map, cnp_priority);
    if (std::ranges::count(map, tc) != 0 && map[wanted.priority] != tc && !is_cnps) others.push_back(tc);
  }
  return others;
}

/// The shares of the classes that priorities lead to; the rest stay as they are, but take nothing.
Ets divided(const Map& map, Ets ets, const Wanted& wanted, unsigned cnp_priority) {
  const auto others = other_classes(map, wanted, cnp_priority);
  ets.share.fill(0);
  std::ranges::replace(ets.algorithm, Tsa::kEts, Tsa::kStrict);
  if (is_alone(map, cnp_priority)) ets.algorithm[map[cnp_priority]] = Tsa::kStrict;
  const unsigned share = others.empty() ? kWhole : wanted.share;
  ets.algorithm[map[wanted.priority]] = Tsa::kEts;
  ets.share[map[wanted.priority]] = static_cast<std::uint8_t>(share);
  for (std::size_t i = 0; i < others.size(); ++i) {
    const std::size_t extra = i < (kWhole - share) % others.size() ? 1 : 0;
    ets.algorithm[others[i]] = Tsa::kEts;
    ets.share[others[i]] = static_cast<std::uint8_t>((kWhole - share) / others.size() + extra);
  }
  return ets;
}

/// Others may divide what is theirs as they like.
bool is_good(const Map& map, const Ets& ets, const Wanted& wanted, unsigned cnp_priority) {
  const auto others = other_classes(map, wanted, cnp_priority);
  const unsigned data = map[wanted.priority];
  const unsigned share = others.empty() ? kWhole : wanted.share;
  const bool cnps_first = cnp_priority == wanted.priority || !is_alone(map, cnp_priority) ||
                          ets.algorithm[map[cnp_priority]] == Tsa::kStrict;
  return cnps_first && ets.algorithm[data] == Tsa::kEts && ets.share[data] == share &&
         std::ranges::all_of(others, [&ets](unsigned tc) { return ets.algorithm[tc] == Tsa::kEts; });
}

}  // namespace

std::string TrafficClasses::text() const {
  std::string all = pairs("prio-tc", [this](unsigned p) { return unsigned{of_priority[p]}; });
  if (!ets) return all;
  return all + " " + pairs("tc-tsa", [this](unsigned tc) { return to_string(ets->algorithm[tc]); }) + " " +
         pairs("tc-bw", [this](unsigned tc) { return unsigned{ets->share[tc]}; });
}

std::string TrafficClasses::shown() const {
  std::string all;
  for (unsigned tc = 0; tc < kPriorities; ++tc) {
    std::string members;
    for (unsigned p = 0; p < kPriorities; ++p) {
      if (of_priority[p] == tc) members += fmt::format("{}{}", members.empty() ? "" : ",", p);
    }
    if (members.empty() && !ets) continue;
    all += fmt::format("{}tc{}({})", all.empty() ? "" : ", ", tc, members);
    if (!ets) continue;
    all += fmt::format(" {}", to_string(ets->algorithm[tc]));
    if (ets->algorithm[tc] == Tsa::kEts || ets->share[tc] != 0) all += fmt::format(" {} %", ets->share[tc]);
  }
  return all;
}

Names TrafficClasses::lists() const {
  const Ets shares = ets.value_or(Ets{});
  return {{"{list}", list([this](unsigned p) { return unsigned{of_priority[p]}; })},
          {"{tsa}", list([&shares](unsigned tc) { return to_string(shares.algorithm[tc]); })},
          {"{bw}", list([&shares](unsigned tc) { return unsigned{shares.share[tc]}; })}};
}

TrafficClasses wanted_classes(const TrafficClasses& now, unsigned class_count, const Wanted& wanted,
                              unsigned cnp_priority) {
  const bool separated =
      is_alone(now.of_priority, wanted.priority) &&
      (class_count < 3 || cnp_priority == wanted.priority || is_alone(now.of_priority, cnp_priority));
  TrafficClasses classes = now;
  if (!separated) classes.of_priority = separate(class_count, wanted.priority, cnp_priority);
  if (now.ets && !(separated && is_good(now.of_priority, *now.ets, wanted, cnp_priority)))
    classes.ets = divided(classes.of_priority, *now.ets, wanted, cnp_priority);
  return classes;
}

}  // namespace tensorwire::host
