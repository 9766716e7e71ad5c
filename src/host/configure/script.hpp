// The same configuration as a plain POSIX shell script, for hosts where nothing of this project is installed.
#pragma once

#include <string>

#include "host/configure/wanted.hpp"

namespace tensorwire::host {

/// A whole script made from the recipes: it shows what it would run, and runs it when it is told to.
[[nodiscard]] std::string standalone_script(const Wanted& wanted);

}  // namespace tensorwire::host
