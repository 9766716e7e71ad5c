// A broken host and what the doctor must say of it: exactly these rules, no others. Where nothing is to be said it is a
// near-miss: something that looks broken and is not.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "host/test_host.hpp"

namespace tensorwire::host::test {

struct RuleCase {
  const char* name;
  Kind kind;
  void (*change)(TestHost& host);
  std::vector<std::string> ids;  ///< without "TW-", sorted, each once
  const char* says = "";         ///< part of the cause, evidence or remedy of a finding
};

[[nodiscard]] std::span<const RuleCase> gid_cases();
[[nodiscard]] std::span<const RuleCase> qos_cases();
[[nodiscard]] std::span<const RuleCase> gpudirect_cases();
[[nodiscard]] std::span<const RuleCase> host_cases();
[[nodiscard]] std::span<const RuleCase> nccl_cases();
/// Public bug reports, by number (docs/doctor.md).
[[nodiscard]] std::span<const RuleCase> field_cases();

}  // namespace tensorwire::host::test
