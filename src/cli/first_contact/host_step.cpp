#include "cli/first_contact/host_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "host/compare/compare.hpp"
#include "host/configure/port_state.hpp"
#include "host/pseudonyms.hpp"
#include "host/read/read.hpp"
#include "host/record.hpp"
#include "host/report.hpp"
#include "host/rule.hpp"
#include "host/tree/live_tree.hpp"
#include "host/tree/recording.hpp"

namespace tensorwire::cli {
namespace {

using Json = nlohmann::json;

constexpr Ps kRecordBound = 60 * kSecond;

/// Names in what a host answers; the questions, which are paths, stay as they are.
void rename_hosts(host::Recording& recording, const Replacements& names) {
  recording.filter([&](host::Ask kind, std::string_view, host::Answer& answer) {
    if (kind == host::Ask::kText || kind == host::Ask::kTool) answer.text = with_other_names(answer.text, names);
    return true;
  });
}

}  // namespace

Json record_host(const Json& request) {
  host::LiveTree live;
  host::Recorder recorder{live};
  for (const host::Netdev& netdev : host::read_host(recorder).netdevs.value_or({})) {
    if (netdev.has_rdma) static_cast<void>(host::read_port_state(recorder, netdev.name));
  }
  host::Recording& recording = recorder.recording();
  host::remove_private(recording);
  if (const auto key = request.value("key", ""); !key.empty()) {
    host::Pseudonyms{key}.apply(recording);
    rename_hosts(recording, request.at("names").get<Replacements>());
  }
  const auto secrets = secrets_in(bootstrap::process_environment());
  const host::Host facts = host::read_host(recording);
  const host::Diagnosis diagnosis = host::diagnose(facts);
  return {{"recording", without_secrets(recording.to_text(), secrets)},
          {"report", without_secrets(host::report_json(facts, diagnosis), secrets)},
          {"text", without_secrets(host::report_text(facts, diagnosis, false), secrets)},
          {"verdict", host::exit_status(diagnosis)},
          {"findings", diagnosis.findings.size()}};
}

std::vector<int> first_ranks(const Star& star) {
  std::set<std::string> hosts;
  std::vector<int> ranks;
  for (const int rank : star.present()) {
    if (hosts.insert(star.host(rank)).second) ranks.push_back(rank);
  }
  return ranks;
}

Outcome record_hosts(Star& star, const std::string& pseudonym_key, Kit& kit) {
  std::map<int, Json> requests;
  for (const int rank : first_ranks(star)) {
    requests[rank] = {{"op", "record"}, {"key", pseudonym_key}, {"names", kit.names()}};
  }
  std::vector<host::NamedProperties> properties;
  std::string failed;
  int worst = 0;
  std::size_t findings = 0;
  for (const auto& [rank, answer] : star.ask(requests, kRecordBound)) {
    const std::string name = with_other_names(star.host(rank), kit.names());
    if (!answer.ok()) {
      failed += fmt::format("{}{}: {}", failed.empty() ? "" : "; ", star.host(rank), answer.error);
      continue;
    }
    const auto recording = answer.body.at("recording").get<std::string>();
    const std::string folder = "hosts/" + name + "/";
    kit.add(folder + std::string{host::kRecordingFile}, recording, Kit::Addresses::kDone);
    kit.add(folder + "doctor.json", answer.body.at("report").get<std::string>(), Kit::Addresses::kDone);
    kit.add(folder + "doctor.txt", answer.body.at("text").get<std::string>(), Kit::Addresses::kDone);
    worst = std::max(worst, answer.body.at("verdict").get<int>());
    findings += answer.body.at("findings").get<std::size_t>();
    host::Recording tree = host::Recording::from_text(recording, name);
    properties.push_back({name, host::properties_of(host::read_host(tree))});
  }
  const host::Comparison comparison = host::compare(properties);
  kit.add("compare.txt", host::comparison_text(comparison), Kit::Addresses::kDone);
  kit.add("compare.json", host::comparison_json(comparison), Kit::Addresses::kDone);
  worst = std::max(worst, host::exit_status(comparison));
  if (!failed.empty()) return {Outcome::Kind::kFailed, failed};
  return {worst == 0 ? Outcome::Kind::kFine : Outcome::Kind::kBad,
          fmt::format("{} recorded, {} findings, {} differences between them (tensorwire doctor on a host says more)",
                      properties.size(), findings, comparison.differences.size())};
}

}  // namespace tensorwire::cli
