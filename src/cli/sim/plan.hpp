// `tensorwire sim plan`: what a token costs on a cluster that does not exist yet, plan by plan, and what it hangs on.
#pragma once

#include "cli/command.hpp"

namespace tensorwire::cli {

/// @param done  set when it was this command that ran.
void add_sim_plan(Command& sim, int& status, bool& done);

}  // namespace tensorwire::cli
