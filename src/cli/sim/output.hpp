// A simulation's report as people read it, and as programs do.
#pragma once

#include <string>

#include "fabric/report.hpp"

namespace tensorwire::cli {

/// How the run went, beside what it found.
struct SimRun {
  double wall_s = 0;
  bool interrupted = false;
  std::string capture;  ///< the file that a port was captured in, and how many packets; empty: none was asked for
};

[[nodiscard]] std::string sim_summary(const fabric::Report& report, const SimRun& run);
[[nodiscard]] std::string sim_json(const fabric::Report& report, const SimRun& run);

}  // namespace tensorwire::cli
