#include "cli/sim/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "cli/bench/presets.hpp"
#include "cli/interrupt.hpp"
#include "cli/sim/play.hpp"
#include "cli/sim/sweep.hpp"
#include "fabric/cluster.hpp"

namespace tensorwire::cli {

namespace {

using collective::Algorithm;
using fabric::Cluster;
using fabric::ClusterShape;

constexpr std::array kPlans{Algorithm::kTwoShot, Algorithm::kTwoShotWindow, Algorithm::kOneShot, Algorithm::kRing};

struct PlanStudyFlags {
  std::uint32_t gpus = 8, tp = 8, batch = 16, oversubscription = 1;
  std::string model = "llama-3.1-70b", nic = "400G", topology = "leaf-spine", placement = "spread";
  std::string buffer = "64MiB", host_loop = "2.5us", post = "100ns";
  double compute_ms = 12;
  std::string json;
};

/// One thing simulated: a cluster, what it is called, what came of it.
struct Case {
  std::string name;
  Cluster cluster;
  fabric::Report report = {};
};

Ps parse_nic(const std::string& text) {
  Ps gbps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), gbps);
  const bool good =
      error == std::errc{} && std::string_view{end} == "G" && gbps >= 10 && gbps <= 800 && 8000 % gbps == 0;
  if (!good) throw Error{"--nic " + text, "it is no rate", "Use one of: 25G, 40G, 50G, 100G, 200G, 400G, 800G"};
  return 8000 / gbps;
}

ClusterShape parse_shape(const std::string& text) {
  std::string known;
  for (const ClusterShape shape : fabric::kClusterShapes) {
    if (name_of(shape) == text) return shape;
    known += (known.empty() ? "" : ", ") + std::string{name_of(shape)};
  }
  throw Error{"--topology " + text, "there is none of that name", "Use one of: " + known};
}

Cluster cluster_of(const PlanStudyFlags& flags) {
  const ModelPreset& model = find_preset(flags.model);
  Cluster cluster;
  cluster.gpus = flags.gpus;
  cluster.tensor_parallel = flags.tp;
  cluster.bytes = std::uint64_t{flags.batch} * model.hidden * 2;  // bf16
  cluster.per_token = model.layers * kAllReducesPerLayer;
  cluster.compute = static_cast<Ps>(flags.compute_ms * kMillisecond);
  cluster.ps_per_byte = parse_nic(flags.nic);
  cluster.shape = parse_shape(flags.topology);
  cluster.oversubscription = flags.oversubscription;
  cluster.buffer_bytes = parse_bytes(flags.buffer);
  cluster.host_loop = parse_duration(flags.host_loop);
  cluster.post_cost = parse_duration(flags.post);
  if (flags.placement != "spread" && flags.placement != "packed")
    throw Error{"--placement " + flags.placement, "there is none of that name", "Use one of: spread, packed"};
  cluster.spread = flags.placement == "spread";
  return cluster;
}

/// False: it was interrupted, and what is there is of the part that ran.
bool simulate(std::vector<Case>& cases) {
  std::vector<fabric::Scenario> scenarios;
  for (const Case& each : cases) scenarios.push_back(scenario_of(each.cluster));
  const std::vector<Played> runs = play_all(scenarios);
  bool whole = true;
  for (std::size_t n = 0; n < cases.size(); ++n) {
    cases[n].report = runs[n].report;
    if (runs[n].run.interrupted) {
      cases[n].name += ", INTERRUPTED";
      whole = false;
    }
    if (!runs[n].report.failure.empty()) throw Error{"plan a cluster: " + cases[n].name, runs[n].report.failure};
  }
  return whole;
}

std::vector<Case> all_plans(const Cluster& cluster) {
  std::vector<Case> cases;
  for (const Algorithm plan : kPlans) {
    cases.push_back({std::string{name_of(plan)}, cluster});
    cases.back().cluster.algorithm = plan;
  }
  return cases;
}

bool can_be_oversubscribed(ClusterShape shape) {
  return shape == ClusterShape::kLeafSpine || shape == ClusterShape::kRailOptimised;
}

/// The best plan with one thing changed at a time; the first is the cluster on a fabric with hosts that take no time.
std::vector<Case> variations(const Cluster& best) {
  std::vector<Case> cases{{"fabric only", best}};
  cases.back().cluster.host_loop = cases.back().cluster.post_cost = 0;
  const auto vary = [&](const std::string& name) -> Cluster& {
    cases.push_back({name, best});
    return cases.back().cluster;
  };
  for (const std::uint32_t ratio : {1U, 2U, 4U})
    if (can_be_oversubscribed(best.shape)) vary(fmt::format("oversubscription {}:1", ratio)).oversubscription = ratio;
  for (const std::uint64_t mib : {16U, 32U, 64U}) vary(fmt::format("buffer {} MiB", mib)).buffer_bytes = mib << 20;
  using transport::MtuCode;
  for (const auto& [bytes, code] : {std::pair{1024, MtuCode::k1024}, {2048, MtuCode::k2048}, {4096, MtuCode::k4096}})
    vary(fmt::format("MTU {}", bytes)).mtu = code;
  return cases;
}

std::string row(const Case& each) {
  const fabric::Report& report = each.report;
  return fmt::format("{:<22} {:>10.2f} {:>15.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.1f} {:>9}\n", each.name,
                     report.ms_per_token, report.comm_ms_per_token, report.p50_us, report.p99_us, report.max_us,
                     100 * report.pause_fraction_max, report.marked);
}

nlohmann::json json_of(const Case& each) {
  const fabric::Report& report = each.report;
  return {{"name", each.name},
          {"ms_per_token", report.ms_per_token},
          {"comm_ms_per_token", report.comm_ms_per_token},
          {"allreduce_us", {{"p50", report.p50_us}, {"p99", report.p99_us}, {"max", report.max_us}}},
          {"pause_fraction_max", report.pause_fraction_max},
          {"ecn_marked", report.marked},
          {"data_packet_hops", report.data_packet_hops}};
}

void print_head(const PlanStudyFlags& flags, const Cluster& cluster) {
  fmt::print("{} GPUs in groups of {}, {} at {}, {} ranks; {}: {} all-reduces of {} KiB a token, {} ms compute; ",
             flags.gpus, flags.tp, flags.topology, flags.nic, flags.placement, flags.model, cluster.per_token,
             cluster.bytes / 1024, flags.compute_ms);
  fmt::print("host loop {}, {} a post\n\n{:<22} {:>10} {:>15} {:>9} {:>9} {:>9} {:>9} {:>9}\n", flags.host_loop,
             flags.post, "plan", "ms/token", "communication", "p50 us", "p99 us", "max us", "paused %", "marked");
}

void write_json(const PlanStudyFlags& flags, const std::vector<Case>& plans, const Case& best,
                const std::vector<Case>& others, bool whole) {
  if (flags.json.empty()) return;
  nlohmann::json json{{"gpus", flags.gpus},
                      {"tensor_parallel", flags.tp},
                      {"bytes", best.cluster.bytes},
                      {"topology", flags.topology},
                      {"best", best.name},
                      {"interrupted", !whole},
                      {"plans", nlohmann::json::array()},
                      {"variations", nlohmann::json::array()}};
  for (const Case& each : plans) json["plans"].push_back(json_of(each));
  for (const Case& each : others) json["variations"].push_back(json_of(each));
  replace_file(flags.json, json.dump(2) + "\n");
}

/// False: it was interrupted; its report is of the part that ran.
bool plan_cluster(const PlanStudyFlags& flags) {
  std::vector<Case> plans = all_plans(cluster_of(flags));
  bool whole = simulate(plans);
  const Case& best = *std::ranges::min_element(
      plans, [](const Case& a, const Case& b) { return a.report.ms_per_token < b.report.ms_per_token; });
  std::vector<Case> others;
  if (whole) {
    others = variations(best.cluster);
    whole = simulate(others);
  }
  print_head(flags, best.cluster);
  for (const Case& each : plans) fmt::print("{}", row(each));
  if (!others.empty()) fmt::print("\nbest: {}. With it,\n", best.name);
  for (const Case& each : others) fmt::print("{}", row(each));
  if (whole) {
    fmt::print(
        "\nOne all-reduce takes {:.2f} us on the fabric alone, and {:.2f} us with the host's software: that figure "
        "may stand beside another library's.\n",
        others.front().report.p50_us, best.report.p50_us);
  }
  write_json(flags, plans, best, others, whole);
  return whole;
}

}  // namespace

void add_sim_plan(Command& sim, int& status, bool& done) {
  auto flags = std::make_shared<PlanStudyFlags>();
  Command command = sim.command("plan", "what a token costs on a cluster that is not there yet");
  command.option("--gpus", flags->gpus, "a NIC each").between(2, 8192).shows_default();
  command.option("--tp", flags->tp, "ranks of a tensor-parallel group").between(2, 128).shows_default();
  command.option("--model", flags->model, "llama-3.1-70b, llama-3.1-8b, mixtral-8x22b").shows_default();
  command.option("--batch", flags->batch, "sequences that are decoded together").between(1, 4096).shows_default();
  command.option("--compute-ms", flags->compute_ms, "of a token, on the GPUs").non_negative().shows_default();
  command.option("--nic", flags->nic, "rate of all links").shows_default();
  command.option("--topology", flags->topology, "single-switch, leaf-spine, rail-optimised, fat-tree").shows_default();
  command.option("--oversubscription", flags->oversubscription, "of leaves: N to 1").between(1, 32).shows_default();
  command.option("--placement", flags->placement, "a group's ranks: spread, packed").shows_default();
  command.option("--buffer", flags->buffer, "of a switch").shows_default();
  command.option("--host-loop", flags->host_loop, "software, from a completion until its answer is posted")
      .shows_default();
  command.option("--post", flags->post, "software, of a work request").shows_default();
  command.option("--json", flags->json, "write the numbers there, too");
  command.runs([flags, &status, &done] {
    done = true;
    const Interruptible interruptible;
    status = plan_cluster(*flags) ? 0 : kInterruptedStatus;
  });
}

}  // namespace tensorwire::cli
