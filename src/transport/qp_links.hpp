// The places of a queue pair in its path's lists: the base of Qp that the scheduler sees.
#pragma once

#include "transport/intrusive_list.hpp"

namespace tensorwire::transport {

struct QpLinks {
  ListLink<QpLinks> control;
  ListLink<QpLinks> data;
};

}  // namespace tensorwire::transport
