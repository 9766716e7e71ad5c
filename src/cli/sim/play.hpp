// Runs one simulation to its end, or until Ctrl-C.
#pragma once

#include "cli/sim/output.hpp"
#include "fabric/scenario.hpp"

namespace tensorwire::cli {

/// While one lives, the first SIGINT or SIGTERM ends all simulations, with their reports; the second one ends the
/// program.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
};

struct Played {
  fabric::Report report;
  SimRun run;
};

/// @param line  whether a terminal shows how far it is. @throws Error
[[nodiscard]] Played play(const fabric::Scenario& scenario, bool line);

}  // namespace tensorwire::cli
