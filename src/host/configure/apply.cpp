#include "host/configure/apply.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <ranges>
#include <tuple>
#include <utility>

namespace tensorwire::host {
namespace {

using Done = std::vector<const Change*>;

/// What is not as it was. How single commands ended says little: what takes back a change that failed halfway fails,
/// too.
void find_left_over(const PortDifference& before, const Wanted& wanted, Effects& effects,
                    std::vector<std::string>& left_over) {
  const PortDifference now = find_difference(effects.read(before.netdev), wanted);
  for (const Change& change : before.changes) {
    if (std::ranges::count(now.unread, change.part) != 0) {
      left_over.push_back(fmt::format("{}: {} cannot be read any more", before.netdev, name_of(change.part)));
      continue;
    }
    const auto same = std::ranges::find(now.changes, change.part, &Change::part);
    const std::string is = same == now.changes.end() ? change.wanted : same->now;
    if (is == change.now) continue;
    left_over.push_back(fmt::format("{}: {} is {} and was {}", before.netdev, name_of(change.part), is, change.now));
  }
}

std::vector<std::string> take_back(const Done& done, std::span<const PortDifference> differences, const Wanted& wanted,
                                   Effects& effects) {
  for (const Change* change : done | std::views::reverse) {
    for (const Action& action : change->undo) std::ignore = effects.perform(action);
  }
  std::vector<std::string> left_over;
  for (const PortDifference& difference : differences) find_left_over(difference, wanted, effects, left_over);
  return left_over;
}

/// Who contradicts what was read; and how each part that was changed was read back.
std::string ask_witnesses(const PortDifference& made, const PortState& state, const Wanted& wanted, Effects& effects,
                          std::vector<std::string>& readings) {
  const std::vector<Witness> all = effects.hear(state, wanted);
  for (const Change& change : made.changes) {
    std::string line =
        fmt::format("{}: {}: read {}", made.netdev, name_of(change.part), reading_of(change.part, state.ofed));
    bool alone = true;
    for (const Witness& witness : all) {
      if (witness.part != change.part) continue;
      if (!witness.agrees) {
        return fmt::format("{}: {} was set to {}, and {} says {}", made.netdev, name_of(change.part), change.wanted,
                           witness.where, witness.says);
      }
      line += fmt::format("{}{}", alone ? "; also by " : ", ", witness.where);
      alone = false;
    }
    readings.push_back(line);
  }
  return {};
}

/// What is not as it was set, although every command said that it was done.
std::string read_back(const PortDifference& made, const Wanted& wanted, Effects& effects,
                      std::vector<std::string>& readings) {
  const PortState state = effects.read(made.netdev);
  const PortDifference now = find_difference(state, wanted);
  if (!now.changes.empty()) {
    const Change& still = now.changes.front();
    return fmt::format("{}: {} is {} after it was set to {}", made.netdev, name_of(still.part), still.now,
                       still.wanted);
  }
  if (now.unknown.size() > made.unknown.size()) {
    return fmt::format("{}: it cannot be read back: {}", made.netdev, now.unknown.front());
  }
  return ask_witnesses(made, state, wanted, effects, readings);
}

}  // namespace

Applied apply(std::span<const PortDifference> differences, const Wanted& wanted, Effects& effects) {
  Done done;
  const auto failed = [&](std::string failure) {
    return Applied{std::move(failure), {}, take_back(done, differences, wanted, effects)};
  };
  for (const PortDifference& difference : differences) {
    for (const Change& change : difference.changes) {
      done.push_back(&change);
      for (const Action& action : change.set) {
        const std::string why = effects.perform(action);
        if (why.empty()) continue;
        return failed(fmt::format("{}: \"{}\" failed: {}", difference.netdev, action.shell(), why));
      }
    }
  }
  Applied applied;
  for (const PortDifference& difference : differences) {
    std::string differs = read_back(difference, wanted, effects, applied.read_back);
    if (!differs.empty()) return failed(std::move(differs));
  }
  return applied;
}

std::vector<Action> undo_of(const PortDifference& difference) {
  std::vector<Action> all;
  for (const Change& change : difference.changes | std::views::reverse) {
    std::ranges::copy(change.undo, std::back_inserter(all));
  }
  return all;
}

}  // namespace tensorwire::host
