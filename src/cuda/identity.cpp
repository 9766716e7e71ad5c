#include "cuda/identity.hpp"

#include <fmt/format.h>

#include "base/host_identity.hpp"
#include "cuda/driver.cuh"

namespace tensorwire::cuda {

std::uint64_t gpu_identity(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), fmt::format("look at GPU {}", device));
  return identity_of(std::as_bytes(std::span(properties.uuid.bytes)));
}

}  // namespace tensorwire::cuda
