#include "cuda/windows.hpp"

#include "cuda/driver.cuh"

namespace tensorwire::cuda {

Windows::Windows(bool on_gpu, std::size_t bytes) : bytes_(bytes) {
  if (!on_gpu) {
    host_.emplace(bytes);
    return;
  }
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "allocate memory of the GPU");
  gpu_ = static_cast<std::byte*>(memory);
}

Windows::~Windows() { cudaFree(gpu_); }

}  // namespace tensorwire::cuda
