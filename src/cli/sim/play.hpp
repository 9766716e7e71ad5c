// Runs one simulation to its end, or until Ctrl-C.
#pragma once

#include <string>

#include "cli/sim/output.hpp"
#include "fabric/scenario.hpp"

namespace tensorwire::cli {

/// What a program returns that SIGINT ended.
inline constexpr int kInterruptedStatus = 130;

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

struct PlayOptions {
  bool line = false;    ///< a terminal shows how far it is
  std::string capture;  ///< a port, or port=file; empty: none
};

/// @throws Error
[[nodiscard]] Played play(const fabric::Scenario& scenario, const PlayOptions& options);

}  // namespace tensorwire::cli
