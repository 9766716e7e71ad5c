// `tensorwire doctor mesh`: latency and bandwidth between all hosts, and which host, cable or rail is out of the
// ordinary.
#pragma once

#include "cli/command.hpp"

namespace tensorwire::cli {

/// @param done  set when it runs: the command above has nothing to do then
void add_doctor_mesh(Command& doctor, int& status, bool& done);

}  // namespace tensorwire::cli
