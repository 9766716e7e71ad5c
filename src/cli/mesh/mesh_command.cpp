#include "cli/mesh/mesh_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "cli/bench/progress_bar.hpp"
#include "cli/bench/report.hpp"
#include "cli/mesh/host_part.hpp"
#include "cli/mesh/launch.hpp"
#include "cli/mesh/report.hpp"
#include "cli/mesh/survey.hpp"

namespace tensorwire::cli {
namespace {

/// No verdict: it could not be measured at all.
constexpr int kNotMeasured = 2;

struct MeshFlags {
  HostsFlags hosts;
  RailWish rails;
  int gid_index = -1;
  double seconds = SurveyPlan{}.seconds;
  std::string json;
  std::string colour = "auto";
};

bool mesh_colour(const std::string& wish) {
  if (wish == "always" || wish == "never") return wish == "always";
  if (wish != "auto") throw Error{"--color", wish + " is none of auto, always, never"};
  return isatty(STDOUT_FILENO) == 1;
}

int lead_mesh(Star& star, const MeshFlags& flags, bool colour) {
  SurveyPlan plan;
  plan.seconds = flags.seconds;
  std::optional<ProgressBar> bar;
  const Survey survey = survey_mesh(star, plan, [&](std::uint64_t done, std::uint64_t all) {
    if (done == 0) {
      bar.emplace("mesh", all, true);
    } else {
      bar->advance();
    }
  });
  bar.reset();
  fmt::print("{}", survey_text(survey, colour));
  std::fflush(stdout);
  if (!flags.json.empty()) write_file(flags.json, survey_json(survey).dump(2) + "\n");
  return exit_status(survey);
}

int measure_mesh(MeshFlags& flags) {
  int status = 0;
  if (started_local_ranks(flags.hosts, status)) return status;
  const bool colour = mesh_colour(flags.colour);
  if (flags.gid_index >= 0) flags.rails.gid_index = flags.gid_index;
  const bootstrap::GroupOptions options = ranks_of(flags.hosts, "doctor mesh");
  HostPart part{options, flags.rails};
  return run_star(
      options, [&](const nlohmann::json& request) { return part.handle(request); },
      [&](Star& star) { return lead_mesh(star, flags, colour); });
}

}  // namespace

void add_doctor_mesh(Command& doctor, int& status, bool& done) {
  Command command = doctor.command("mesh", "latency and bandwidth between all hosts: which host, cable or rail is bad");
  auto flags = std::make_shared<MeshFlags>();
  command.option("--devices", flags->rails.devices, "RDMA devices of each host, a rail each (default: all)")
      .separated_by(',');
  command.option("--gid-index", flags->gid_index, "GID table index (default: the routable RoCE v2 entry)")
      .non_negative();
  command.option("--seconds", flags->seconds, "that each latency and each bandwidth is measured for")
      .shows_default()
      .positive();
  command.option("--json", flags->json, "write the matrix and what is wrong to this file");
  command.option("--color", flags->colour, "auto, always or never").shows_default();
  flags->hosts.add_to(command);
  command.runs([flags, &status, &done] {
    done = true;
    try {
      status = measure_mesh(*flags);
    } catch (const Error& error) {
      std::fprintf(stderr, "tensorwire: %s\n", error.what());
      status = kNotMeasured;
    }
  });
}

}  // namespace tensorwire::cli
