#include "cli/mesh/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/mesh/outliers.hpp"
#include "cli/mesh/sentence.hpp"

namespace tensorwire::cli {
namespace {

using Json = nlohmann::json;

/// What is within the ordinary, of time and of time for each byte. Three microseconds a busy core alone makes. An HCA
/// of the CPU's is late by a time slice now and then: of it only what no scheduler does is worth a word.
struct Tolerances {
  Tolerance latency, bandwidth;
};
constexpr Tolerances kOfHardware{{.share = 0.4, .least = 3}, {.share = 0.4, .least = 0}};
constexpr Tolerances kOfSoftware{{.share = 1, .least = 2000}, {.share = 9, .least = 0}};

/// Large writes reach nine tenths of a line and more; PCIe that is too narrow shows below this share.
constexpr double kShareOfLine = 0.7;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

class MeshJudge {
 public:
  explicit MeshJudge(const MeshMatrix& mesh) : mesh_(mesh) { verdict_.suspects.resize(mesh.rails()); }

  MeshVerdict run() {
    find_usual();
    name_absent_hosts();
    name_missing_devices();
    judge_reach();
    judge_latency();
    judge_bandwidth();
    for (auto& pairs : verdict_.suspects) {
      std::ranges::sort(pairs);
      pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    }
    return std::move(verdict_);
  }

 private:
  template <class Visit>
  void for_each_cell(Visit visit) const {
    for (std::size_t rail = 0; rail < mesh_.rails(); ++rail) {
      for (std::size_t from = 0; from < mesh_.hosts().size(); ++from) {
        for (std::size_t to = 0; to < mesh_.hosts().size(); ++to) {
          const MeshCell& cell = mesh_.cell(rail, from, to);
          // Whoever dropped out is named for that; how it was before says nothing of the links.
          if (!mesh_.has_pair(rail, from, to)) continue;
          if (cell.measured || cell.failed()) visit(JudgedCell{rail, from, to}, cell);
        }
      }
    }
  }

  /// A round trip takes the same way from both ends: the better of the two looks at it.
  [[nodiscard]] double latency_of(const JudgedCell& at) const {
    const MeshCell& there = mesh_.cell(at.rail, at.from, at.to);
    const MeshCell& back = mesh_.cell(at.rail, at.to, at.from);
    return back.measured ? std::min(there.latency_p50_us, back.latency_p50_us) : there.latency_p50_us;
  }

  [[nodiscard]] const Tolerances& tolerances() const {
    for (const MeshHost& host : mesh_.hosts()) {
      if (std::ranges::any_of(host.ends, &MeshEnd::software)) return kOfSoftware;
    }
    return kOfHardware;
  }

  void find_usual() {
    std::vector<double> latencies;
    std::vector<double> seconds_per_gb;
    for_each_cell([&](const JudgedCell& at, const MeshCell& cell) {
      if (!cell.measured) return;
      latencies.push_back(latency_of(at));
      if (cell.bandwidth_gb_s > 0) seconds_per_gb.push_back(1 / cell.bandwidth_gb_s);
    });
    const UsualCost latency = usual_cost(std::move(latencies), tolerances().latency);
    const UsualCost bandwidth = usual_cost(std::move(seconds_per_gb), tolerances().bandwidth);
    verdict_.usual = {latency.usual, latency.bound, bandwidth.usual > 0 ? 1 / bandwidth.usual : 0, 1 / bandwidth.bound};
  }

  void name_absent_hosts() {
    for (std::size_t host = 0; host < mesh_.hosts().size(); ++host) {
      const std::string& why = mesh_.hosts()[host].absent;
      if (why.empty()) continue;
      add({MeshTrouble::kAbsent, {.scope = BlameScope::kHost, .host = host}}, why);
    }
  }

  void name_missing_devices() {
    for (std::size_t host = 0; host < mesh_.hosts().size(); ++host) {
      if (!mesh_.hosts()[host].absent.empty()) continue;
      for (std::size_t rail = 0; rail < mesh_.rails(); ++rail) {
        const MeshEnd& end = mesh_.hosts()[host].ends[rail];
        if (end.usable()) continue;
        const std::string why = end.rank < 0 ? "it has no device there, and another host has"
                                             : fmt::format("{} cannot be used: {}", end.device, end.problem);
        add({MeshTrouble::kDevice, {.scope = BlameScope::kCable, .rail = rail, .host = host}}, why);
      }
    }
  }

  void judge_reach() {
    const auto cells = judged([](const JudgedCell&, const MeshCell& cell) { return cell.failed(); },
                              [](const MeshCell&) { return true; });
    for (Blame& blame : find_blame(cells)) {
      std::map<std::string, std::size_t> causes;
      for (const std::size_t i : blame.cells) ++causes[mesh_.cell(cells[i].rail, cells[i].from, cells[i].to).why];
      const auto most = std::ranges::max_element(causes, {}, [](const auto& cause) { return cause.second; });
      add({MeshTrouble::kUnreached, std::move(blame)}, most->first);
    }
  }

  void judge_latency() {
    const auto cells = judged(
        [this](const JudgedCell& at, const MeshCell&) { return latency_of(at) > verdict_.usual.latency_bound_us; },
        [](const MeshCell& cell) { return cell.measured; });
    for (Blame& blame : find_blame(cells)) {
      std::vector<double> values;
      for (const std::size_t i : blame.cells) values.push_back(latency_of(cells[i]));
      add({MeshTrouble::kLatency, std::move(blame), median(std::move(values)), verdict_.usual.latency_us}, {});
    }
  }

  [[nodiscard]] double line_of(const JudgedCell& at) const {
    return std::min(mesh_.hosts()[at.from].ends[at.rail].line_gb_s, mesh_.hosts()[at.to].ends[at.rail].line_gb_s);
  }

  void judge_bandwidth() {
    const auto cells = judged(
        [this](const JudgedCell& at, const MeshCell& cell) {
          return cell.bandwidth_gb_s < std::max(verdict_.usual.bandwidth_bound_gb_s, kShareOfLine * line_of(at));
        },
        [](const MeshCell& cell) { return cell.measured; });
    for (Blame& blame : find_blame(cells)) {
      std::vector<double> values;
      double line = 0;
      for (const std::size_t i : blame.cells) {
        values.push_back(mesh_.cell(cells[i].rail, cells[i].from, cells[i].to).bandwidth_gb_s);
        line = std::max(line, line_of(cells[i]));
      }
      const double measured = median(std::move(values));
      const bool short_of_line = measured >= verdict_.usual.bandwidth_bound_gb_s;
      add({MeshTrouble::kBandwidth, std::move(blame), measured, short_of_line ? line : verdict_.usual.bandwidth_gb_s,
           short_of_line},
          {});
    }
  }

  template <class IsBad, class Counts>
  std::vector<JudgedCell> judged(IsBad is_bad, Counts counts) {
    std::vector<JudgedCell> cells;
    for_each_cell([&](JudgedCell at, const MeshCell& cell) {
      if (!counts(cell)) return;
      at.bad = is_bad(at, cell);
      cells.push_back(at);
      if (at.bad) verdict_.suspects[at.rail].emplace_back(std::min(at.from, at.to), std::max(at.from, at.to));
    });
    return cells;
  }

  void add(MeshFinding finding, const std::string& why) {
    finding.sentence = mesh_sentence(finding, mesh_, why);
    verdict_.findings.push_back(std::move(finding));
  }

  const MeshMatrix& mesh_;
  MeshVerdict verdict_;
};

Json finding_json(const MeshFinding& finding, const MeshMatrix& mesh) {
  const Blame& blame = finding.blame;
  const bool of_pair = blame.scope == BlameScope::kPair || blame.scope == BlameScope::kRailPair;
  const bool of_host = blame.scope == BlameScope::kHost || blame.scope == BlameScope::kCable;
  Json hosts = Json::array();
  if (of_pair || of_host) hosts.push_back(mesh.hosts()[blame.host].name);
  if (of_pair) hosts.push_back(mesh.hosts()[blame.peer].name);
  const bool has_number = finding.trouble == MeshTrouble::kLatency || finding.trouble == MeshTrouble::kBandwidth;
  return {{"trouble", name_of(finding.trouble)},
          {"scope", name_of(blame.scope)},
          {"way", name_of(blame.way)},
          {"rail", blame.rail ? Json(*blame.rail) : Json(nullptr)},
          {"hosts", std::move(hosts)},
          {"measured", has_number ? Json(finding.measured) : Json(nullptr)},
          {"usual", has_number ? Json(finding.usual) : Json(nullptr)},
          {"sentence", finding.sentence}};
}

}  // namespace

MeshVerdict judge_mesh(const MeshMatrix& mesh) { return MeshJudge{mesh}.run(); }

Json verdict_json(const MeshVerdict& verdict, const MeshMatrix& mesh) {
  Json findings = Json::array();
  for (const MeshFinding& finding : verdict.findings) findings.push_back(finding_json(finding, mesh));
  const MeshUsual& usual = verdict.usual;
  return {{"usual",
           {{"latency_us", usual.latency_us},
            {"bandwidth_gb_s", usual.bandwidth_gb_s},
            {"bandwidth_bound_gb_s", usual.bandwidth_bound_gb_s}}},
          {"findings", std::move(findings)}};
}

}  // namespace tensorwire::cli
