// How long an operation may wait on a GPU, where 0 of the host is no bound: the GPU always has one.
#pragma once

#include "comm/communicator.hpp"

namespace tensorwire::comm {

[[nodiscard]] inline Ps bound_on_gpu(const CommOptions& options) noexcept {
  constexpr Ps kNoBound = 90 * 24 * 3600 * kSecond;
  return options.operation_timeout == 0 ? kNoBound : options.operation_timeout;
}

}  // namespace tensorwire::comm
