#include "cuda/protocol.cuh"
#include "ping.hpp"

namespace tensorwire::bench {

namespace {

__global__ void ping(Table* table, std::uint64_t rounds) {
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    cuda::release_word(&table->to_host, round);
    while (cuda::acquire_word(&table->to_gpu) != round) {
    }
  }
}

}  // namespace

int launch_ping(Table* table, std::uint64_t rounds, cuda::Stream stream) noexcept {
  void* parameters[] = {&table, &rounds};
  return cudaLaunchKernel(reinterpret_cast<const void*>(&ping), dim3(1), dim3(1), parameters, 0, stream);
}

}  // namespace tensorwire::bench
