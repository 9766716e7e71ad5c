// What the ranks must agree on before they join their GPUs: whether all can, and by which path.
#pragma once

#include <cstdint>

#include "bootstrap/group.hpp"

namespace tensorwire::comm {

enum class GpuPath : std::uint8_t {
  kAuto = 1,          ///< peer, else shared, else hierarchical, else proxy
  kPeer = 2,          ///< between the GPUs' memories, or an error
  kShared = 3,        ///< the same kernels, through memory of the one host that all ranks are on, or an error
  kHierarchical = 4,  ///< all-reduces so inside hosts and by the proxy between them, or an error; all else as kProxy
  kProxy = 5,         ///< kernels hand windows of pinned memory to a proxy thread, which carries them between the ranks
  kHost = 6,          ///< each call waits for its stream, and copies
};

/// TENSORWIRE_PATH of all ranks: the last in the order above that any rank has. A collective call.
/// @param has_cuda whether this rank's build knows GPUs @throws Error, on all ranks that have CUDA, where one has not
[[nodiscard]] GpuPath agree_on_path(bootstrap::Group& group, bool has_cuda);

}  // namespace tensorwire::comm
