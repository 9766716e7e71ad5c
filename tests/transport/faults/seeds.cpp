#include "seeds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "violation.hpp"

namespace tensorwire::transport::faults {
namespace {

constexpr const char* kUsage =
    "usage: {} [--seeds N] [--first S] [--seed S] [--hours H] [--jobs J] [--no-hits]\n"
    "  --seeds N   run N seeds (default 1000)\n"
    "  --first S   the first of them (default 0)\n"
    "  --seed S    run this one alone\n"
    "  --hours H   run seeds until H hours are over; fractions are good\n"
    "  --jobs J    in so many threads (default 1); points are counted over all of them\n"
    "  --no-hits   do not demand that every point was hit\n";

struct Options {
  std::uint64_t first = 0;
  std::uint64_t seeds = 1000;
  double hours = 0;
  std::uint64_t jobs = 1;
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
    } else if (name == "--jobs") {
      options.jobs = std::clamp<std::uint64_t>(std::strtoull(value, &end, 0), 1, 1024);
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

bool run_seed(const Program& program, std::uint64_t seed, Workspace& workspace) {
  const std::unique_ptr<Run> run = program.make_run(seed, workspace);
  try {
    run->go();
    return true;
  } catch (const Violation& violation) {
    fmt::print("seed {}: violated: {}\n{}  alone: {} --seed {}\n", seed, violation.what(), run->story(), program.name,
               seed);
    return false;
  }
}

/// Which seeds are left, for all threads.
class Seeds {
 public:
  explicit Seeds(const Options& options) : options_(options), began_(monotonic_now()) {}

  std::optional<std::uint64_t> next() {
    const std::lock_guard guard(mutex_);
    if (failed_ || over()) return std::nullopt;
    return options_.first + given_++;
  }
  void fail() { failed_ = true; }
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] std::uint64_t given() const { return given_; }
  [[nodiscard]] Ps elapsed() const { return monotonic_now() - began_; }

 private:
  [[nodiscard]] bool over() const {
    if (options_.hours == 0) return given_ >= options_.seeds;
    return static_cast<double>(elapsed()) >= options_.hours * 3600 * static_cast<double>(kSecond);
  }

  const Options& options_;
  Ps began_;
  std::mutex mutex_;
  std::uint64_t given_ = 0;
  std::atomic<bool> failed_{false};
};

void run_seeds(const Program& program, Seeds& seeds, Workspace& workspace) {
  while (const auto seed = seeds.next())
    if (!run_seed(program, *seed, workspace)) seeds.fail();
}

/// Prints every point with its count; false when one was not hit.
bool report(const std::vector<std::unique_ptr<Workspace>>& workspaces, const Seeds& seeds) {
  std::vector<Tally> sum = workspaces.front()->tally();
  std::uint64_t requests = 0;
  std::uint64_t packets = 0;
  for (const auto& workspace : workspaces) {
    requests += workspace->requests;
    packets += workspace->packets;
    if (workspace == workspaces.front()) continue;
    const std::vector<Tally> more = workspace->tally();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i].count += more[i].count;
  }
  std::uint32_t missed = 0;
  for (const Tally& tally : sum) {
    fmt::print("{:>14}  {}{}\n", tally.count, tally.name, tally.count == 0 ? "  <-- never hit" : "");
    if (tally.count == 0) ++missed;
  }
  fmt::print("{} seeds, {} work requests, {} packets in {:.1f} s; {} points, {} never hit\n", seeds.given(), requests,
             packets, static_cast<double>(seeds.elapsed()) / static_cast<double>(kSecond), sum.size(), missed);
  return missed == 0;
}

}  // namespace

int run_program(const Program& program, int count, char** arguments) {
  const std::optional<Options> options = read_options(count, arguments);
  if (!options) {
    fmt::print(stderr, kUsage, program.name);
    return 2;
  }
  Seeds seeds(*options);
  std::vector<std::unique_ptr<Workspace>> workspaces;
  for (std::uint64_t i = 0; i < options->jobs; ++i) workspaces.push_back(program.make_workspace());
  {
    std::vector<std::jthread> threads;
    for (const auto& workspace : workspaces) threads.emplace_back([&] { run_seeds(program, seeds, *workspace); });
  }
  if (seeds.failed()) return 1;
  const bool complete = report(workspaces, seeds);
  return complete || !options->demand_hits ? 0 : 1;
}

}  // namespace tensorwire::transport::faults
