// Second opinions on what a port is like after a change: other ways to ask than the one that the state was read by. A
// command that was done, and a kernel that says so, are no proof that the NIC does it.
#pragma once

#include <string>
#include <vector>

#include "host/configure/port_state.hpp"
#include "host/configure/recipe.hpp"
#include "host/configure/wanted.hpp"

namespace tensorwire::host {

struct Witness {
  Part part;
  bool agrees;       ///< with what is wanted
  std::string says;  ///< "priorities with pause counters: 3"
  std::string where;
};

/// Those that this host has; most have few.
[[nodiscard]] std::vector<Witness> witnesses(Tree& tree, const PortState& state, const Wanted& wanted);

/// How a part is read back: over which path, and whether that is another one than it is set over.
[[nodiscard]] std::string_view reading_of(Part part, bool ofed) noexcept;

}  // namespace tensorwire::host
