// What a decode step needs besides matrix products and communication. bf16.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace tensorwire::bench {

/// Small numbers of either sign, the same for the same seed.
void fill_random(void* buffer, std::size_t count, std::uint64_t seed, cudaStream_t stream);
/// In place, of each of `rows` rows.
void softmax(void* rows, std::size_t count, std::size_t row, float scale, cudaStream_t stream);
/// out[r][i] = silu(both[r][i]) * both[r][inner + i]
void silu_and_multiply(const void* both, void* out, std::size_t rows, std::size_t inner, cudaStream_t stream);
/// residual += in; norm = residual / rms(residual) * weight, of each row: what follows an all-reduce that is not fused.
void add_and_norm(const void* in, void* residual, const void* weight, void* norm, std::size_t rows, std::size_t hidden,
                  cudaStream_t stream);
/// Has the driver load them.
void load_decode_kernels();

}  // namespace tensorwire::bench
