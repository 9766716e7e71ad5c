// How ranks come to map each other's scratch: who is on this host, in this process and on which GPU; the layout that
// follows; the memory itself. All ranks pass the same steps; a rank that fails in one takes part in the exchange that
// ends it, so that all ranks fail there with its line.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cuda/communicator.hpp"
#include "cuda/gpu_memory.hpp"

namespace tensorwire::cuda {

struct Met {
  Layout layout;
  /// By rank; this rank's own is where the others write. Ranks of one process hold the same objects.
  std::vector<std::shared_ptr<GpuMemory>> scratch;
  GpuMemory own;                   ///< Peers::own, where that is not the scratch
  std::vector<std::uint64_t> who;  ///< by rank: which GPU of which process
};

/// @param prepare runs on each rank before its scratch is made @throws Error
[[nodiscard]] Met meet(const CommunicatorOptions& options, const std::function<void()>& prepare);

}  // namespace tensorwire::cuda
