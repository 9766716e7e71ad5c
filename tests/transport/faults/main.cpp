// test_faults: runs seeds of the fault simulation; see README.md.
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
#include "run.hpp"
#include "violation.hpp"

namespace {

using namespace tensorwire;
using namespace tensorwire::transport::faults;

constexpr const char* kUsage =
    "usage: test_faults [--seeds N] [--first S] [--seed S] [--hours H] [--jobs J] [--no-hits]\n"
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

void run_seeds(Seeds& seeds, Workspace& workspace) {
  while (const auto seed = seeds.next())
    if (!run_seed(*seed, workspace)) seeds.fail();
}

/// Prints every point with its count; false when one was not hit.
bool report(const std::vector<Workspace>& workspaces, const Seeds& seeds) {
  std::uint32_t missed = 0;
  for (std::size_t i = 0; i < kPointNames.size(); ++i) {
    std::uint64_t count = 0;
    for (const Workspace& workspace : workspaces) count += workspace.hits.counts[i];
    fmt::print("{:>14}  {}{}\n", count, kPointNames[i], count == 0 ? "  <-- never hit" : "");
    if (count == 0) ++missed;
  }
  std::uint64_t requests = 0;
  std::uint64_t packets = 0;
  for (const Workspace& workspace : workspaces) {
    requests += workspace.requests;
    packets += workspace.packets;
  }
  fmt::print("{} seeds, {} work requests, {} packets in {:.1f} s; {} points, {} never hit\n", seeds.given(), requests,
             packets, static_cast<double>(seeds.elapsed()) / static_cast<double>(kSecond), kPointNames.size(), missed);
  return missed == 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::optional<Options> options = read_options(count, arguments);
  if (!options) {
    fmt::print(stderr, "{}", kUsage);
    return 2;
  }
  Seeds seeds(*options);
  std::vector<Workspace> workspaces(options->jobs);
  {
    std::vector<std::jthread> threads;
    for (Workspace& workspace : workspaces) threads.emplace_back([&] { run_seeds(seeds, workspace); });
  }
  if (seeds.failed()) return 1;
  const bool complete = report(workspaces, seeds);
  return complete || !options->demand_hits ? 0 : 1;
}
