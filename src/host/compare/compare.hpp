// Compares recordings of many hosts: of each property the value that most of them have, and the hosts that differ.
// Never pairs: a thousand hosts give one line for each property that is not the same everywhere.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "host/compare/property.hpp"

namespace tensorwire::host {

struct NamedProperties {
  std::string host;  ///< how the caller calls it: the folder of the recording
  HostProperties properties;
};

/// Hosts that have another value than most.
struct Outliers {
  std::string value;
  std::vector<std::string> hosts;
};

struct Difference {
  std::string property;
  Severity severity = Severity::kInfo;
  std::string why;
  std::string majority;            ///< empty where no value is more frequent than all others
  std::size_t agreeing = 0;        ///< how many hosts have it
  std::vector<Outliers> outliers;  ///< the rarest first
};

struct Comparison {
  std::size_t hosts = 0;
  std::vector<Difference> differences;  ///< by severity
};

[[nodiscard]] Comparison compare(const std::vector<NamedProperties>& hosts);

[[nodiscard]] std::string comparison_text(const Comparison& comparison);
[[nodiscard]] std::string comparison_json(const Comparison& comparison);
/// As of a diagnosis: 0, 1 or 2.
[[nodiscard]] int exit_status(const Comparison& comparison);

}  // namespace tensorwire::host
