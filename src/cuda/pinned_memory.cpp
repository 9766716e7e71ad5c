#include "cuda/pinned_memory.hpp"

#include <cstring>

#include "cuda/driver.cuh"

namespace tensorwire::cuda {

PinnedMemory::PinnedMemory(std::size_t bytes) : bytes_(bytes) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "allocate pinned memory");
  host_ = static_cast<std::byte*>(memory);
  std::memset(memory, 0, bytes);
  void* mapped = nullptr;
  const cudaError_t error = cudaHostGetDevicePointer(&mapped, memory, 0);
  if (error != cudaSuccess) cudaFreeHost(memory);
  check(error, "map pinned memory");
  on_gpu_ = static_cast<std::byte*>(mapped);
}

PinnedMemory::~PinnedMemory() { cudaFreeHost(host_); }

}  // namespace tensorwire::cuda
