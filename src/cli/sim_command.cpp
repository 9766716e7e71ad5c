// `tensorwire sim SCENARIO`: plays a fabric in virtual time and says what came of it.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "cli/interrupt.hpp"
#include "cli/program.hpp"
#include "cli/sim/output.hpp"
#include "cli/sim/page.hpp"
#include "cli/sim/plan.hpp"
#include "cli/sim/play.hpp"
#include "cli/sim/sweep.hpp"

namespace tensorwire::cli {

namespace {

struct SimFlags {
  std::string scenario;
  std::string json, html;
  std::optional<std::uint64_t> seed;
  std::string sweep;
  std::string capture;
  bool done = false;  ///< a command below this one did it
};

fabric::Scenario read(const SimFlags& flags, const std::vector<fabric::Setting>& settings = {}) {
  fabric::Scenario scenario = fabric::read_scenario(flags.scenario, settings);
  if (flags.seed) scenario.fabric.seed = *flags.seed;
  return scenario;
}

int status_of(const Played& played) {
  if (played.run.interrupted) return kInterruptedStatus;
  return played.report.failure.empty() ? 0 : 1;
}

void write_reports(const SimFlags& flags, const std::string& title, const std::string& json) {
  if (!flags.json.empty()) replace_file(flags.json, json);
  if (!flags.html.empty()) replace_file(flags.html, sim_page(title, json));
}

int run_one(const SimFlags& flags) {
  const Played played = play(read(flags), {true, flags.capture});
  write_reports(flags, played.report.scenario, sim_json(played.report, played.run));
  fmt::print("{}", sim_summary(played.report, played.run));
  return status_of(played);
}

int run_sweep(const SimFlags& flags) {
  const Sweep sweep = parse_sweep(flags.sweep);
  std::vector<fabric::Scenario> scenarios;
  for (const std::string& value : sweep.values) scenarios.push_back(read(flags, {{sweep.key, value}}));
  const std::vector<Played> runs = play_all(scenarios);
  write_reports(flags, sweep.key, sweep_json(sweep, runs));
  fmt::print("{}", sweep_summary(sweep, runs));
  int status = 0;
  for (const Played& played : runs) status = std::max(status, status_of(played));
  return status;
}

}  // namespace

void add_sim(Command& parent, int& status) {
  auto flags = std::make_shared<SimFlags>();
  Command command = parent.command("sim", "play a cluster's fabric in virtual time, packet by packet");
  command.option("scenario", flags->scenario, "a TOML file, as scenarios/pfc_storm.toml");
  command.option("--json", flags->json, "write the report there, too");
  command.option("--html", flags->html, "write the report there as a page, to be opened in a browser");
  command.option("--seed", flags->seed, "instead of the scenario's");
  command.option("--sweep", flags->sweep, "compare values of a key, on all cores: switch.ecn.min=64KiB,128KiB");
  command.option("--pcap", flags->capture,
                 "capture a port for Wireshark: \"leaf 3 port 7\", or \"leaf 3 port 7=FILE\"");
  add_sim_plan(command, status, flags->done);
  command.runs([flags, &status] {
    if (flags->done) return;
    if (flags->scenario.empty()) throw Error{"sim", "no scenario is given", "Name a file, as scenarios/pfc_storm.toml"};
    const Interruptible interruptible;
    status = flags->sweep.empty() ? run_one(*flags) : run_sweep(*flags);
  });
}

}  // namespace tensorwire::cli
