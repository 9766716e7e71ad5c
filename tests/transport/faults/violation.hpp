// How the simulator says that the engine broke a rule: an exception that names the rule. Whoever runs a seed catches it
// and adds the seed, the time and the last packets.
#pragma once

#include <stdexcept>
#include <string>

namespace tensorwire::transport::faults {

struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void require(bool holds, const char* rule) {
  if (!holds) throw Violation(rule);
}

}  // namespace tensorwire::transport::faults
