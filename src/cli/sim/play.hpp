// Runs one simulation to its end, or until Ctrl-C (interrupt.hpp).
#pragma once

#include <string>

#include "cli/sim/output.hpp"
#include "fabric/scenario.hpp"

namespace tensorwire::cli {

struct Played {
  fabric::Report report;
  SimRun run;
};

struct PlayOptions {
  bool line = false;    ///< a terminal shows how far it is
  std::string capture;  ///< a port, or port=file; empty: none
};

/// @throws Error
[[nodiscard]] Played play(const fabric::Scenario& scenario, const PlayOptions& options);

}  // namespace tensorwire::cli
