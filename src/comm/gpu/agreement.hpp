// What the ranks must agree on before they join their GPUs: whether all can, and by which path.
#pragma once

#include <cstdint>

#include "bootstrap/group.hpp"

namespace tensorwire::comm {

enum class GpuPath : std::uint8_t {
  kAuto = 1,  ///< peer, else host
  kPeer = 2,  ///< between the GPUs' memories, or an error
  kHost = 3,  ///< through host memory
};

/// TENSORWIRE_PATH of all ranks: host where any rank has that, else peer where any rank has that. A collective call.
/// @param has_cuda whether this rank's build knows GPUs @throws Error, on all ranks that have CUDA, where one has not
[[nodiscard]] GpuPath agree_on_path(bootstrap::Group& group, bool has_cuda);

}  // namespace tensorwire::comm
