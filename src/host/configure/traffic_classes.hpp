// Which traffic class each priority should have and how the classes share the link (ETS): a pure function of what there
// is. The lossless priority has a class of its own with a share that the others cannot take; CNPs go before all, in a
// class of their own where the device has three; what is left of the link is divided among the classes of the other
// priorities.
#pragma once

#include <optional>
#include <string>

#include "host/configure/recipe.hpp"
#include "host/configure/wanted.hpp"
#include "host/facts/netdev.hpp"

namespace tensorwire::host {

struct TrafficClasses {
  std::array<std::uint8_t, kPriorities> of_priority{};
  std::optional<Ets> ets;  ///< nothing: the device does not show it

  /// As `dcb ets set` takes it: "prio-tc 0:0 ... tc-tsa 0:ets ... tc-bw 0:9 ...".
  [[nodiscard]] std::string text() const;
  /// The same for people: "tc0(0,1) ets 9 %, ..., tc6(6) strict".
  [[nodiscard]] std::string shown() const;
  /// {list}, {tsa} and {bw} of a recipe.
  [[nodiscard]] Names lists() const;
};

/// `now` where that is good enough. @param class_count  of the device
[[nodiscard]] TrafficClasses wanted_classes(const TrafficClasses& now, unsigned class_count, const Wanted& wanted,
                                            unsigned cnp_priority);

}  // namespace tensorwire::host
