#include "gpu/delay.hpp"

namespace tensorwire::test {

namespace {

__global__ void wait_for(std::uint64_t nanoseconds) {
  std::uint64_t began;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(began));
  for (std::uint64_t now = began; now - began < nanoseconds;) asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
}

}  // namespace

void delay(std::uint64_t nanoseconds, cudaStream_t stream) { wait_for<<<1, 1, 0, stream>>>(nanoseconds); }

void load_delay() {
  cudaFuncAttributes attributes;
  cudaFuncGetAttributes(&attributes, wait_for);
}

}  // namespace tensorwire::test
