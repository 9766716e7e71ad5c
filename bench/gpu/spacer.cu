#include <cuda_bf16.h>

#include "spacer.hpp"

namespace tensorwire::bench {

namespace {

__global__ void spacer(__nv_bfloat16* in, const __nv_bfloat16* out, float scale) {
  in[0] = __float2bfloat16(__bfloat162float(out[0]) * scale);
}

__global__ void fill(__nv_bfloat16* buffer, std::size_t count) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += std::size_t{gridDim.x} * blockDim.x) {
    buffer[i] = __float2bfloat16(1.0F);
  }
}

__global__ void count_others(const __nv_bfloat16* buffer, std::size_t count, float value, unsigned* others) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += std::size_t{gridDim.x} * blockDim.x) {
    if (__bfloat162float(buffer[i]) != value) atomicAdd(others, 1U);
  }
}

}  // namespace

void launch_spacer(void* in, const void* out, int ranks, cudaStream_t stream) {
  spacer<<<1, 1, 0, stream>>>(static_cast<__nv_bfloat16*>(in), static_cast<const __nv_bfloat16*>(out),
                              1.0F / static_cast<float>(ranks));
}

void fill_with_ones(void* buffer, std::size_t count, cudaStream_t stream) {
  fill<<<256, 256, 0, stream>>>(static_cast<__nv_bfloat16*>(buffer), count);
}

bool all_are(const void* buffer, std::size_t count, float value, cudaStream_t stream) {
  unsigned* others = nullptr;
  if (cudaMallocAsync(&others, sizeof *others, stream) != cudaSuccess) return false;
  unsigned found = 1;
  cudaMemsetAsync(others, 0, sizeof *others, stream);
  count_others<<<256, 256, 0, stream>>>(static_cast<const __nv_bfloat16*>(buffer), count, value, others);
  cudaMemcpyAsync(&found, others, sizeof found, cudaMemcpyDeviceToHost, stream);
  cudaFreeAsync(others, stream);
  return cudaStreamSynchronize(stream) == cudaSuccess && found == 0;
}

}  // namespace tensorwire::bench
