// What a container or pod keeps from a program inside it: facts that may be otherwise on the host, and where to read
// them instead.
#pragma once

#include <string>
#include <vector>

#include "host/facts/host.hpp"

namespace tensorwire::host {

/// A sentence for each kind of fact that is hidden; none outside of containers.
[[nodiscard]] std::vector<std::string> hidden_facts(const Host& host);

}  // namespace tensorwire::host
