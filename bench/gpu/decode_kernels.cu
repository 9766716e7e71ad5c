#include <cuda_bf16.h>

#include "decode_kernels.hpp"

namespace tensorwire::bench {

namespace {

using Element = __nv_bfloat16;
constexpr unsigned kThreads = 256;

/// Of eight elements in registers.
struct alignas(16) Eight {
  Element of[8];
};

__device__ float block_sum(float value) {
  __shared__ float of_warps[32];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0U, value, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += of_warps[warp];
  return sum;
}

__device__ float block_max(float value) {
  __shared__ float of_warps[32];
  for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(~0U, value, step));
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  float largest = of_warps[0];
  for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) largest = fmaxf(largest, of_warps[warp]);
  return largest;
}

__global__ void fill_random_kernel(Element* buffer, std::size_t count, std::uint64_t seed) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += std::size_t{gridDim.x} * blockDim.x) {
    std::uint64_t hash = (seed + i) * 0x9e3779b97f4a7c15;
    hash = (hash ^ hash >> 32) * 0xbf58476d1ce4e5b9;
    buffer[i] = __float2bfloat16((static_cast<float>(hash >> 40) / static_cast<float>(1U << 24) - 0.5F) * 0.05F);
  }
}

__global__ void softmax_kernel(Element* rows, std::size_t row, float scale) {
  Element* const mine = rows + blockIdx.x * row;
  float largest = -INFINITY;
  for (std::size_t i = threadIdx.x; i < row; i += blockDim.x)
    largest = fmaxf(largest, __bfloat162float(mine[i]) * scale);
  largest = block_max(largest);
  float sum = 0;
  for (std::size_t i = threadIdx.x; i < row; i += blockDim.x)
    sum += __expf(__bfloat162float(mine[i]) * scale - largest);
  sum = block_sum(sum);
  for (std::size_t i = threadIdx.x; i < row; i += blockDim.x) {
    mine[i] = __float2bfloat16(__expf(__bfloat162float(mine[i]) * scale - largest) / sum);
  }
}

__global__ void silu_kernel(const Element* both, Element* out, std::size_t inner) {
  const Element* const gate = both + std::size_t{2} * inner * blockIdx.y;
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < inner / 8; i += std::size_t{gridDim.x} * blockDim.x) {
    const Eight a = reinterpret_cast<const Eight*>(gate)[i];
    const Eight b = reinterpret_cast<const Eight*>(gate + inner)[i];
    Eight result;
    for (int e = 0; e < 8; ++e) {
      const float x = __bfloat162float(a.of[e]);
      result.of[e] = __float2bfloat16(x / (1.0F + __expf(-x)) * __bfloat162float(b.of[e]));
    }
    reinterpret_cast<Eight*>(out + inner * blockIdx.y)[i] = result;
  }
}

/// A block has a row, and keeps it in registers.
template <unsigned kHeld>
__global__ void __launch_bounds__(1024) add_and_norm_kernel(const Element* in, Element* residual, const Element* weight,
                                                            Element* norm, std::size_t hidden) {
  const std::size_t base = blockIdx.x * hidden / 8;
  Eight held[kHeld];
  float squares = 0;
#pragma unroll
  for (unsigned i = 0; i < kHeld; ++i) {
    const std::size_t at = threadIdx.x + std::size_t{i} * blockDim.x;
    if (at >= hidden / 8) continue;
    const Eight a = reinterpret_cast<const Eight*>(in)[base + at];
    held[i] = reinterpret_cast<const Eight*>(residual)[base + at];
    for (int e = 0; e < 8; ++e) {
      held[i].of[e] = __float2bfloat16(__bfloat162float(a.of[e]) + __bfloat162float(held[i].of[e]));
      squares += __bfloat162float(held[i].of[e]) * __bfloat162float(held[i].of[e]);
    }
    reinterpret_cast<Eight*>(residual)[base + at] = held[i];
  }
  const float scale = rsqrtf(block_sum(squares) / static_cast<float>(hidden) + 1e-6F);
#pragma unroll
  for (unsigned i = 0; i < kHeld; ++i) {
    const std::size_t at = threadIdx.x + std::size_t{i} * blockDim.x;
    if (at >= hidden / 8) continue;
    const Eight by = reinterpret_cast<const Eight*>(weight)[at];
    for (int e = 0; e < 8; ++e) {
      held[i].of[e] = __float2bfloat16(__bfloat162float(held[i].of[e]) * scale * __bfloat162float(by.of[e]));
    }
    reinterpret_cast<Eight*>(norm)[base + at] = held[i];
  }
}

template <class Kernel>
void load_kernel(Kernel kernel) {
  cudaFuncAttributes attributes;
  cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
}

}  // namespace

void fill_random(void* buffer, std::size_t count, std::uint64_t seed, cudaStream_t stream) {
  fill_random_kernel<<<1024, kThreads, 0, stream>>>(static_cast<Element*>(buffer), count, seed);
}

void softmax(void* rows, std::size_t count, std::size_t row, float scale, cudaStream_t stream) {
  softmax_kernel<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(static_cast<Element*>(rows), row, scale);
}

void silu_and_multiply(const void* both, void* out, std::size_t rows, std::size_t inner, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((inner / 8 + kThreads - 1) / kThreads);
  silu_kernel<<<dim3(blocks, static_cast<unsigned>(rows)), kThreads, 0, stream>>>(static_cast<const Element*>(both),
                                                                                  static_cast<Element*>(out), inner);
}

void add_and_norm(const void* in, void* residual, const void* weight, void* norm, std::size_t rows, std::size_t hidden,
                  cudaStream_t stream) {
  add_and_norm_kernel<2><<<static_cast<unsigned>(rows), static_cast<unsigned>(hidden / 16), 0, stream>>>(
      static_cast<const Element*>(in), static_cast<Element*>(residual), static_cast<const Element*>(weight),
      static_cast<Element*>(norm), hidden);
}

void load_decode_kernels() {
  load_kernel(&fill_random_kernel);
  load_kernel(&softmax_kernel);
  load_kernel(&silu_kernel);
  load_kernel(&add_and_norm_kernel<2>);
}

}  // namespace tensorwire::bench
