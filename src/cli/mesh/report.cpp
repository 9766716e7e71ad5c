#include "cli/mesh/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

namespace tensorwire::cli {
namespace {

constexpr std::size_t kMostWithNumbers = 12;
constexpr std::size_t kCellWidth = 12;
constexpr std::string_view kOff = "\033[0m";

/// How good a value is, 1 being usual; what failed is 0.
std::string_view heat(double goodness) {
  constexpr double kGood = 0.85;
  constexpr double kPoor = 0.6;
  if (goodness >= kGood) return "\033[32m";
  return goodness >= kPoor ? "\033[33m" : "\033[31m";
}

std::string painted(const std::string& text, double goodness, bool colour) {
  return colour ? fmt::format("{}{}{}", heat(goodness), text, kOff) : text;
}

std::string number(double value) {
  if (value >= 1000) return fmt::format("{:.0f}", value);
  return value >= 10 ? fmt::format("{:.1f}", value) : fmt::format("{:.2f}", value);
}

/// One of the two matrices of a rail.
class MeshTable {
 public:
  MeshTable(const Survey& survey, std::size_t rail, bool latency, bool colour)
      : survey_(survey), mesh_(survey.mesh), rail_(rail), latency_(latency), colour_(colour) {}

  [[nodiscard]] std::string render() const {
    const std::size_t hosts = mesh_.hosts().size();
    const bool numbers = hosts <= kMostWithNumbers;
    std::string text = title(numbers);
    if (numbers) text += heading();
    for (std::size_t from = 0; from < hosts; ++from) {
      text += fmt::format("  {:>{}} ", mesh_.hosts()[from].name, name_width());
      for (std::size_t to = 0; to < hosts; ++to) text += numbers ? cell(from, to) : mark(from, to);
      text += "\n";
    }
    return text;
  }

 private:
  [[nodiscard]] std::string title(bool numbers) const {
    std::string text = latency_ ? "latency of an 8-byte write, one way, in us: median/99th percentile"
                                : "bandwidth of 1 MiB writes in GB/s";
    if (!numbers) text = latency_ ? "latency, 9: as usual" : "bandwidth, 9: as usual";
    if (mesh_.rails() > 1) text = fmt::format("rail {}: {}", rail_, text);
    return text + (latency_ ? "\n" : ", from row to column\n");
  }

  [[nodiscard]] std::string heading() const {
    std::string text = fmt::format("  {:>{}} ", "", name_width());
    for (const MeshHost& host : mesh_.hosts()) {
      text += fmt::format("{:>{}}", host.name.substr(0, kCellWidth - 1), kCellWidth);
    }
    return text + "\n";
  }

  [[nodiscard]] std::size_t name_width() const {
    std::size_t width = 0;
    for (const MeshHost& host : mesh_.hosts()) width = std::max(width, host.name.size());
    return width;
  }

  [[nodiscard]] double goodness(const MeshCell& value) const {
    if (!value.measured) return 0;
    const MeshUsual& usual = survey_.verdict.usual;
    return latency_ ? usual.latency_us / value.latency_p50_us : value.bandwidth_gb_s / usual.bandwidth_gb_s;
  }

  [[nodiscard]] std::string cell(std::size_t from, std::size_t to) const {
    const MeshCell& value = mesh_.cell(rail_, from, to);
    if (!value.measured && !value.failed()) return fmt::format("{:>{}}", from == to ? "." : "-", kCellWidth);
    std::string text = value.word;
    if (value.measured) {
      text = latency_ ? fmt::format("{}/{}", number(value.latency_p50_us), number(value.latency_p99_us))
                      : fmt::format("{:.3f}", value.bandwidth_gb_s);
    }
    return painted(fmt::format("{:>{}}", text, kCellWidth), goodness(value), colour_);
  }

  [[nodiscard]] std::string mark(std::size_t from, std::size_t to) const {
    const MeshCell& value = mesh_.cell(rail_, from, to);
    if (!value.measured && !value.failed()) return from == to ? "." : "-";
    const double good = goodness(value);
    const int tenths = static_cast<int>(std::lround(std::min(good, 1.0) * 9));
    return painted(value.measured ? fmt::format("{}", tenths) : "x", good, colour_);
  }

  const Survey& survey_;
  const MeshMatrix& mesh_;
  std::size_t rail_;
  bool latency_;
  bool colour_;
};

std::string ends_text(const MeshMatrix& mesh) {
  std::string text;
  for (const MeshHost& host : mesh.hosts()) {
    for (std::size_t rail = 0; rail < mesh.rails(); ++rail) {
      if (host.ends[rail].usable()) text += fmt::format("  {}: {}\n", host.name, host.ends[rail].path);
    }
  }
  return text;
}

std::string summary(const Survey& survey) {
  const MeshUsual& usual = survey.verdict.usual;
  std::string text;
  if (usual.bandwidth_gb_s > 0) {
    text = fmt::format("usual: {} us, {:.3f} GB/s", number(usual.latency_us), usual.bandwidth_gb_s);
    if (survey.looked_again > 0) text += fmt::format("; {} pairs were measured again", survey.looked_again);
    text += "\n";
  }
  if (survey.interrupted) text += "interrupted: what is shown is not the whole mesh\n";
  if (survey.verdict.findings.empty()) {
    return text + (usual.bandwidth_gb_s > 0 ? "nothing is out of the ordinary\n" : "no pair was measured\n");
  }
  for (const MeshFinding& finding : survey.verdict.findings) text += fmt::format("BAD {}\n", finding.sentence);
  return text;
}

}  // namespace

std::string survey_text(const Survey& survey, bool colour) {
  std::string text = fmt::format("mesh of {} hosts, {} {}\n{}", survey.mesh.hosts().size(), survey.mesh.rails(),
                                 survey.mesh.rails() == 1 ? "rail" : "rails", ends_text(survey.mesh));
  for (std::size_t rail = 0; rail < survey.mesh.rails(); ++rail) {
    text += MeshTable{survey, rail, true, colour}.render();
    text += MeshTable{survey, rail, false, colour}.render();
  }
  return text + summary(survey);
}

nlohmann::json survey_json(const Survey& survey) {
  nlohmann::json json = mesh_json(survey.mesh);
  json.update(verdict_json(survey.verdict, survey.mesh));
  json["interrupted"] = survey.interrupted;
  json["measured_again"] = survey.looked_again;
  return json;
}

int exit_status(const Survey& survey) {
  const bool measured = survey.verdict.usual.bandwidth_gb_s > 0;
  return survey.verdict.findings.empty() && measured && !survey.interrupted ? 0 : 1;
}

}  // namespace tensorwire::cli
