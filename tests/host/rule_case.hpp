// A changed host and what the doctor must say of it: exactly these rules, no others. A near-miss of a rule is a host
// that looks as if the rule applied, and on which it must stay silent; every rule needs a case of both.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "host/test_host.hpp"

namespace tensorwire::host::test {

struct RuleCase {
  const char* name;
  Kind kind;
  void (*change)(TestHost& host);
  /// "GID-003": the rule fires; "!GID-003": this is a near-miss of it.
  std::vector<std::string> rules;
  const char* says = "";  ///< part of the cause, evidence or remedy of a finding

  /// Sorted.
  [[nodiscard]] std::set<std::string> firing() const;
  [[nodiscard]] std::set<std::string> near_misses() const;
};

/// Of all files.
[[nodiscard]] std::vector<const RuleCase*> all_cases();

[[nodiscard]] std::span<const RuleCase> gid_cases();
[[nodiscard]] std::span<const RuleCase> qos_cases();
[[nodiscard]] std::span<const RuleCase> gpudirect_cases();
[[nodiscard]] std::span<const RuleCase> host_cases();
[[nodiscard]] std::span<const RuleCase> nccl_cases();
/// Public bug reports; by number in field_case_table_test.cpp.
[[nodiscard]] std::span<const RuleCase> field_cases();
[[nodiscard]] std::span<const RuleCase> device_field_cases();

}  // namespace tensorwire::host::test
