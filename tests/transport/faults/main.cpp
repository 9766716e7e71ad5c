// test_faults: runs seeds of the fault simulation; see README.md.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "run.hpp"
#include "violation.hpp"

namespace {

using namespace tensorwire;
using namespace tensorwire::transport::faults;

constexpr const char* kUsage =
    "usage: test_faults [--seeds N] [--first S] [--seed S] [--hours H] [--no-hits]\n"
    "  --seeds N   run N seeds (default 1000)\n"
    "  --first S   the first of them (default 0)\n"
    "  --seed S    run this one alone\n"
    "  --hours H   run seeds until H hours are over; fractions are good\n"
    "  --no-hits   do not demand that every point was hit\n";

struct Options {
  std::uint64_t first = 0;
  std::uint64_t seeds = 1000;
  double hours = 0;
  bool demand_hits = true;
};

std::optional<Options> read_options(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string_view name = arguments[i];
    if (name == "--no-hits") {
      options.demand_hits = false;
      continue;
    }
    if (i + 1 == count) return std::nullopt;
    const char* value = arguments[++i];
    char* end = nullptr;
    if (name == "--hours") {
      options.hours = std::strtod(value, &end);
    } else if (name == "--seeds") {
      options.seeds = std::strtoull(value, &end, 0);
    } else if (name == "--first" || name == "--seed") {
      options.first = std::strtoull(value, &end, 0);
      if (name == "--seed") options.seeds = 1;
      if (name == "--seed") options.demand_hits = false;
    } else {
      return std::nullopt;
    }
    if (end == value || *end != '\0') return std::nullopt;
  }
  return options;
}

bool run_seed(std::uint64_t seed, Workspace& workspace) {
  Run run(seed, workspace);
  try {
    run.go();
    return true;
  } catch (const Violation& violation) {
    fmt::print("seed {}: violated: {}\n{}  alone: test_faults --seed {}\n", seed, violation.what(), run.story(), seed);
    return false;
  }
}

/// Prints every point with its count; false when one was not hit.
bool report(const Workspace& workspace, std::uint64_t seeds, Ps elapsed) {
  std::uint32_t missed = 0;
  for (std::size_t i = 0; i < kPointNames.size(); ++i) {
    const std::uint64_t count = workspace.hits.counts[i];
    fmt::print("{:>14}  {}{}\n", count, kPointNames[i], count == 0 ? "  <-- never hit" : "");
    if (count == 0) ++missed;
  }
  fmt::print("{} seeds, {} work requests, {} packets in {:.1f} s; {} points, {} never hit\n", seeds, workspace.requests,
             workspace.packets, static_cast<double>(elapsed) / static_cast<double>(kSecond), kPointNames.size(),
             missed);
  return missed == 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::optional<Options> options = read_options(count, arguments);
  if (!options) {
    fmt::print(stderr, "{}", kUsage);
    return 2;
  }
  Workspace workspace;
  const Ps began = monotonic_now();
  const auto over = [&](std::uint64_t done) {
    if (options->hours == 0) return done == options->seeds;
    return static_cast<double>(monotonic_now() - began) >= options->hours * 3600 * static_cast<double>(kSecond);
  };
  std::uint64_t done = 0;
  for (; !over(done); ++done)
    if (!run_seed(options->first + done, workspace)) return 1;
  const bool complete = report(workspace, done, monotonic_now() - began);
  return complete || !options->demand_hits ? 0 : 1;
}
