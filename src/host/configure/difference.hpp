// What has to be done so that a port is as it should be: a pure function of what it is like and what is wanted. Nothing
// is changed here; the result can be shown, applied (apply.hpp) or written as a script.
#pragma once

#include <string>
#include <vector>

#include "host/configure/action.hpp"
#include "host/configure/port_state.hpp"
#include "host/configure/recipe.hpp"
#include "host/configure/wanted.hpp"

namespace tensorwire::host {

struct Change {
  Part part;
  std::string now;  ///< "26:3 48:0", or why it is not known
  std::string wanted;
  std::vector<Action> set;
  std::vector<Action> undo;  ///< in the order in which they are to be done; empty: it stays
};

struct PortDifference {
  std::string netdev;
  std::string recipe;                 ///< whose commands these are
  std::vector<Part> equal;            ///< parts that are as they should be
  std::vector<Change> changes;        ///< in the order in which it is safe to make them
  std::vector<std::string> notes;     ///< what is known and cannot be changed here
  std::vector<std::string> unknown;   ///< parts that could not be read, or that nobody can set here, with the reason
  std::vector<std::string> refusals;  ///< why nothing may be changed at all: one clause each

  std::vector<Part> unread;  ///< those of them that could not be read

  [[nodiscard]] bool flaps_link() const;
  /// Why it cannot be said whether data rides in a lossless priority; empty: it can.
  [[nodiscard]] std::string why_not_judged() const;
};

[[nodiscard]] PortDifference find_difference(const PortState& state, const Wanted& wanted);

}  // namespace tensorwire::host
