#include "cli/sim/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.hpp"

namespace tensorwire::cli {

Sweep parse_sweep(const std::string& text) {
  Sweep sweep;
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw Error{"--sweep " + text, "it names no key and values", "Write it as --sweep switch.ecn.min=64KiB,128KiB"};
  sweep.key = text.substr(0, equals);
  for (std::size_t at = equals + 1; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    sweep.values.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return sweep;
}

std::vector<Played> play_all(const std::vector<fabric::Scenario>& scenarios) {
  std::vector<Played> runs(scenarios.size());
  std::vector<std::exception_ptr> failures(scenarios.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t n = next++; n < scenarios.size(); n = next++) {
      try {
        runs[n] = play(scenarios[n], {});
      } catch (...) {
        failures[n] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  for (std::size_t n = 0; n < std::min(cores, scenarios.size()); ++n) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return runs;
}

std::string sweep_summary(const Sweep& sweep, const std::vector<Played>& runs) {
  constexpr double kWidth = 32;
  const bool tokens = std::ranges::any_of(runs, [](const Played& run) { return !run.report.groups.empty(); });
  const auto measure = [tokens](const Played& run) { return tokens ? run.report.ms_per_token : run.report.bulk_gbps; };
  double most = 1e-9;
  for (const Played& run : runs) most = std::max(most, measure(run));
  std::string text =
      fmt::format("{:>20} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9}\n", sweep.key, tokens ? "ms/token" : "bulk Gb/s",
                  "p50 us", "p99 us", "paused %", "marked", "dropped");
  for (std::size_t n = 0; n < runs.size(); ++n) {
    const fabric::Report& report = runs[n].report;
    text += fmt::format("{:>20} {:>12.2f} {:>9.2f} {:>9.2f} {:>9.1f} {:>9} {:>9}  {:#<{}}{}\n", sweep.values[n],
                        measure(runs[n]), report.p50_us, report.p99_us, 100 * report.pause_fraction_max, report.marked,
                        report.dropped, "", static_cast<std::size_t>(kWidth * measure(runs[n]) / most),
                        runs[n].run.interrupted ? " INTERRUPTED" : "");
  }
  return text;
}

std::string sweep_json(const Sweep& sweep, const std::vector<Played>& runs) {
  nlohmann::json json{{"sweep", sweep.key}, {"runs", nlohmann::json::array()}};
  for (std::size_t n = 0; n < runs.size(); ++n) {
    nlohmann::json run = nlohmann::json::parse(sim_json(runs[n].report, runs[n].run));
    run["value"] = sweep.values[n];
    json["runs"].push_back(std::move(run));
  }
  return json.dump(2) + "\n";
}

}  // namespace tensorwire::cli
