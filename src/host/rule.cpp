#include "host/rule.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "host/rules/groups.hpp"
#include "host/unread.hpp"

namespace tensorwire::host {

std::string_view to_string(Severity severity) noexcept {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "?";
}

std::string_view to_string(Confidence confidence) noexcept {
  switch (confidence) {
    case Confidence::kPossible:
      return "possible";
    case Confidence::kLikely:
      return "likely";
    case Confidence::kCertain:
      return "certain";
  }
  return "?";
}

void Judgement::found(Confidence confidence, std::string subject, std::string cause, std::string remedy,
                      std::vector<std::string> evidence) {
  diagnosis_.findings.push_back({std::string{rule_.id}, rule_.severity, confidence, std::move(subject),
                                 std::move(evidence), std::move(cause), std::move(remedy)});
}

void Judgement::not_known(std::string what, const std::string& where, const std::string& why) {
  diagnosis_.unknown.push_back({std::string{rule_.id}, std::move(what), where + ": " + why});
}

std::span<const RuleGroup> all_rules() {
  static const std::array groups = {
      gid_rules(),  pfc_rules(), ecn_rules(),    qos_rules(),     mtu_rules(),  gpudirect_rules(),
      link_rules(), net_rules(), device_rules(), process_rules(), nccl_rules(),
  };
  return groups;
}

Diagnosis diagnose(const Host& host) {
  Diagnosis diagnosis;
  for (const RuleGroup& group : all_rules()) {
    for (const Rule& rule : group.rules) {
      Judgement judgement{rule, diagnosis};
      rule.judge(host, judgement);
    }
  }
  add_unread_facts(host, diagnosis);
  std::ranges::stable_sort(diagnosis.findings, std::ranges::greater{}, &Finding::severity);
  return diagnosis;
}

}  // namespace tensorwire::host
