#include <cuda_bf16.h>

#include "tensors.hpp"

namespace tensorwire::litmus {

namespace {

constexpr unsigned kThreads = 256;

__device__ float element(std::uint64_t epoch, std::uint32_t rank, std::size_t at) {
  std::uint64_t hash = (epoch * 8 + rank) * 0x9e3779b97f4a7c15 + at;
  hash = (hash ^ hash >> 31) * 0xbf58476d1ce4e5b9;
  return static_cast<float>(static_cast<int>((hash >> 40) % 61) - 30);
}

__global__ void fill_kernel(__nv_bfloat16* in, std::size_t count, std::uint64_t epoch, std::uint32_t rank) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += std::size_t{gridDim.x} * blockDim.x) {
    in[i] = __float2bfloat16(element(epoch, rank, i));
  }
}

__global__ void check_kernel(const __nv_bfloat16* out, std::size_t count, Promise promise, std::uint64_t epoch,
                             std::uint32_t rank, std::uint32_t ranks, unsigned long long* wrong) {
  const bool from_each = promise == Promise::kAllInputs || promise == Promise::kOnePartOfEach;
  const bool of_part = promise == Promise::kSumOfPart || promise == Promise::kOnePartOfEach;
  const std::size_t all = from_each ? count * ranks : count;
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < all; i += std::size_t{gridDim.x} * blockDim.x) {
    const std::size_t at = (from_each ? i % count : i) + (of_part ? rank * count : 0);
    float expected = 0;
    if (from_each) {
      expected = element(epoch, static_cast<std::uint32_t>(i / count), at);
    } else {
      for (std::uint32_t other = 0; other < ranks; ++other) expected += element(epoch, other, at);
    }
    // As bits: a NaN would differ from nothing, and -0 is not what a sum of whole numbers gives.
    const auto bits = [](float value) { return __bfloat16_as_ushort(__float2bfloat16(value)); };
    if (__bfloat16_as_ushort(out[i]) != bits(expected + 0.0F)) atomicAdd(wrong, 1ULL);
  }
}

unsigned blocks_for(std::size_t count) {
  return static_cast<unsigned>(count / kThreads < 64 ? count / kThreads + 1 : 64);
}

}  // namespace

void fill(void* in, std::size_t count, std::uint64_t epoch, int rank, cudaStream_t stream) {
  fill_kernel<<<blocks_for(count), kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(in), count, epoch,
                                                          static_cast<std::uint32_t>(rank));
}

void check(const void* out, std::size_t count, Promise promise, std::uint64_t epoch, int rank, int ranks,
           unsigned long long* wrong, cudaStream_t stream) {
  check_kernel<<<blocks_for(count), kThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(out), count, promise,
                                                           epoch, static_cast<std::uint32_t>(rank),
                                                           static_cast<std::uint32_t>(ranks), wrong);
}

}  // namespace tensorwire::litmus
