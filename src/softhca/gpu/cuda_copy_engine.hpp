// GPUs through CUDA's driver: two streams a GPU, one for each direction, that no other stream waits for, and a word in
// page-locked memory behind each copy that says that it is done. So waiting costs no call of the driver. Their priority
// is the greatest, which also gives them hardware queues of their own: in a shared one, a copy of the program that
// waits for a kernel would hold up ours, and the kernel may be waiting for what ours brings.
#pragma once

#include <memory>

#include "softhca/gpu/copy_engine.hpp"

namespace tensorwire::softhca {

/// Knows memory only once the program itself has loaded CUDA's driver, and loads none.
[[nodiscard]] std::unique_ptr<GpuPlatform> make_cuda_platform();

}  // namespace tensorwire::softhca
