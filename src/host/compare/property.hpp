// What hosts of one fabric must agree on: a property has a value on each host, as text. The list of them is data, like
// the rules.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "host/rule.hpp"

namespace tensorwire::host {

struct PropertyKind {
  std::string_view name;  ///< "lossless priorities"
  Severity severity;      ///< of a difference
  std::string_view why;   ///< what a difference does, and what to do about it
};

/// The values of one host. A property that is not known there is missing; a variable that is not set is "not set".
struct HostProperties {
  std::map<std::string, std::string> values;  ///< by name of the property, of a variable by its own
};

[[nodiscard]] HostProperties properties_of(const Host& host);

/// What is known of a property by its name; settings of libraries share one kind.
[[nodiscard]] const PropertyKind& kind_of(std::string_view property);

}  // namespace tensorwire::host
