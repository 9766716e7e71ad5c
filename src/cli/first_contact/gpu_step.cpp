#include "cli/first_contact/gpu_step.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/first_contact/child.hpp"
#include "cli/first_contact/host_step.hpp"

namespace tensorwire::cli {
namespace {

using Json = nlohmann::json;

constexpr Ps kGpuBound = 120 * kSecond;
constexpr Ps kGpuAnswerBound = kGpuBound + 10 * kSecond;

struct GpuTally {
  std::size_t pairs = 0;
  std::size_t written = 0;  ///< and found right
  std::map<std::string, std::size_t> paths;

  void count(const Json& pair) {
    ++pairs;
    ++paths[pair.value("path", "none")];
    if (pair.contains("write") && pair["write"].value("right", false)) ++written;
  }

  [[nodiscard]] std::string line() const {
    std::string text = fmt::format("{} pairs of GPU and NIC: ", pairs);
    for (const auto& [path, count] : paths) text += fmt::format("{} by {}, ", count, path);
    return text + fmt::format("{} written to and read back right", written);
  }
};

}  // namespace

Json gpudirect_pairs(const std::string& lines, std::string& no_gpu) {
  std::map<std::pair<int, std::string>, Json> pairs;
  std::istringstream text{lines};
  for (std::string line; std::getline(text, line);) {
    Json pair = Json::parse(line, nullptr, false);
    if (!pair.is_object()) continue;
    no_gpu = pair.value("no_gpu", no_gpu);
    if (!pair.contains("gpu")) continue;
    const std::pair key{pair.value("gpu", 0), pair.value("device", "")};
    pairs[key] = std::move(pair);
  }
  Json all = Json::array();
  for (auto& [key, pair] : pairs) all.push_back(std::move(pair));
  return all;
}

Json examine_gpudirect(const RailWish& wish, const volatile std::sig_atomic_t& stop) {
  std::vector<std::string> arguments{"first-contact", "--part", "gpudirect"};
  if (!wish.devices.empty()) arguments.push_back(fmt::format("--devices={}", fmt::join(wish.devices, ",")));
  if (wish.gid_index) arguments.push_back(fmt::format("--gid-index={}", *wish.gid_index));
  ChildPlan plan;
  plan.words = this_program(arguments);
  plan.bound = kGpuBound;
  const ChildResult child = run_child(plan, stop);
  std::string no_gpu;
  Json pairs = gpudirect_pairs(child.out, no_gpu);
  return {{"pairs", std::move(pairs)}, {"no_gpu", no_gpu}, {"died", child.ok() ? "" : child.why()}};
}

Outcome examine_gpus(Star& star, Kit& kit) {
  std::map<int, Json> requests;
  for (const int rank : first_ranks(star)) requests[rank] = {{"op", "gpudirect"}};
  Json report = Json::array();
  GpuTally tally;
  std::string failed;
  std::string no_gpu;
  for (auto& [rank, answer] : star.ask(requests, kGpuAnswerBound)) {
    Json host = answer.ok() ? answer.body : Json{{"died", answer.error}};
    for (const Json& pair : host.value("pairs", Json::array())) tally.count(pair);
    if (const auto died = host.value("died", ""); !died.empty()) failed = fmt::format("{}: {}", star.host(rank), died);
    if (const auto none = host.value("no_gpu", ""); !none.empty())
      no_gpu = fmt::format("no GPU on {}: {}", star.host(rank), none);
    host["host"] = star.host(rank);
    report.push_back(std::move(host));
  }
  kit.add("gpudirect.json", report.dump(2) + "\n");
  if (!failed.empty()) return {Outcome::Kind::kFailed, failed};
  if (tally.pairs == 0) return {Outcome::Kind::kNotHere, no_gpu.empty() ? "nobody answered" : no_gpu};
  const bool all_right = tally.written == tally.pairs;
  return {all_right ? Outcome::Kind::kFine : Outcome::Kind::kBad, tally.line() + (no_gpu.empty() ? "" : "; " + no_gpu)};
}

}  // namespace tensorwire::cli
