// The places of a queue pair in its path's lists and in the timers: the base of Qp that scheduler and timers see.
#pragma once

#include <cstddef>

#include "transport/intrusive_list.hpp"

namespace tensorwire::transport {

struct QpLinks {
  ListLink<QpLinks> control;
  ListLink<QpLinks> replies;
  ListLink<QpLinks> data;
  static constexpr std::size_t kNoTimer = static_cast<std::size_t>(-1);
  std::size_t timer = kNoTimer;
  std::size_t pacing = kNoTimer;
  std::size_t notice = kNoTimer;
  ListLink<QpLinks> cnp;    ///< of the path that CNPs have to themselves
  ListLink<QpLinks> given;  ///< messages that nothing answers are with the link
};

}  // namespace tensorwire::transport
