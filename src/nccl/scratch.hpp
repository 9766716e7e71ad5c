// Memory for results that a call gives to ranks which did not ask for them: ncclReduce is an all-reduce, and of ranks
// other than the root NCCL touches no buffer. Each communicator has blocks of its own, on the host or on a GPU, which
// it keeps until it goes.
#pragma once

#include <cstddef>
#include <optional>

#include "nccl/abi.hpp"

namespace tensorwire::nccl {

/// A block that no other call of this thread's group has, of the GPU's memory or, for nothing, of the host's. Null:
/// there is no memory.
[[nodiscard]] void* take_scratch(Comm comm, std::optional<int> device, std::size_t bytes) noexcept;
/// The calls of this thread that took blocks are enqueued, or over: later ones may have the same.
void give_back_scratch() noexcept;
/// The communicator is gone, and all that ran on it.
void free_scratch_of(Comm comm) noexcept;

}  // namespace tensorwire::nccl
