// The little kernel that stands between two operations, as a model's layers do: it makes each depend on the one before.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace tensorwire::bench {

/// One element of the next input is made of the last output: `in[0] = out[0] / ranks`, bf16.
void launch_spacer(void* in, const void* out, int ranks, cudaStream_t stream);
/// Fills with bf16 1.0.
void fill_with_ones(void* buffer, std::size_t count, cudaStream_t stream);
/// Whether all elements are `value`.
[[nodiscard]] bool all_are(const void* buffer, std::size_t count, float value, cudaStream_t stream);

}  // namespace tensorwire::bench
