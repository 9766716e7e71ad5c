// The same scenario with one key at several values, on all cores, and the comparison.
#pragma once

#include <string>
#include <vector>

#include "cli/sim/play.hpp"

namespace tensorwire::cli {

struct Sweep {
  std::string key;
  std::vector<std::string> values;
};

/// From "switch.ecn.min=64KiB,128KiB". @throws Error
[[nodiscard]] Sweep parse_sweep(const std::string& text);
/// One run for each scenario, in the order given. @throws Error, the first that any of them met
[[nodiscard]] std::vector<Played> play_all(const std::vector<fabric::Scenario>& scenarios);
/// A table with a bar for each value: what a token takes, or where there are no tokens, bulk traffic.
[[nodiscard]] std::string sweep_summary(const Sweep& sweep, const std::vector<Played>& runs);
[[nodiscard]] std::string sweep_json(const Sweep& sweep, const std::vector<Played>& runs);

}  // namespace tensorwire::cli
