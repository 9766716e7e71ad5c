// What tells hosts and GPUs from others, as numbers that ranks compare.
#pragma once

#include <cstdint>

#include "base/host_identity.hpp"

namespace tensorwire::cuda {

using tensorwire::host_identity;

/// The UUID of a GPU. @throws Error
[[nodiscard]] std::uint64_t gpu_identity(int device);

}  // namespace tensorwire::cuda
