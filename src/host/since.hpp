// Counters are since the driver was loaded. Two looks tell what they did in between, and rules judge that the same way:
// a storm of last week is none, and one that goes on is.
#pragma once

#include "host/facts/host.hpp"

namespace tensorwire::host {

/// `after` with every counter as what it moved by since `before`. One that was set back in between is left out.
[[nodiscard]] Host counted_since(const Host& before, Host after);

}  // namespace tensorwire::host
