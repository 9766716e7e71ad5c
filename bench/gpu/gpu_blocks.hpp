// Memory of the current GPU that a way to reduce hands out; freed with it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "base/error.hpp"

namespace tensorwire::bench {

class GpuBlocks {
 public:
  GpuBlocks() = default;
  ~GpuBlocks() {
    for (void* block : blocks_) cudaFree(block);
  }
  GpuBlocks(const GpuBlocks&) = delete;
  GpuBlocks& operator=(const GpuBlocks&) = delete;

  /// @throws Error
  [[nodiscard]] void* take(std::size_t bytes) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, bytes) != cudaSuccess) throw Error("allocate GPU memory", "there is too little");
    blocks_.push_back(memory);
    return memory;
  }

 private:
  std::vector<void*> blocks_;
};

}  // namespace tensorwire::bench
