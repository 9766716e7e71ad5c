// `tensorwire doctor watch`: what the ports of this host do, look by look.
#pragma once

#include "cli/command.hpp"

namespace tensorwire::cli {

/// @param done set when it runs, so that the command above knows that it has nothing to do
void add_doctor_watch(Command& doctor, int& status, bool& done);

}  // namespace tensorwire::cli
