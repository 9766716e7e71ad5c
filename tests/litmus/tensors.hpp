// Tensors whose elements follow from (epoch, rank, place), made and checked on the GPU. bf16, whole numbers so small
// that every sum of eight of them is exact.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace tensorwire::litmus {

/// What an operation makes of everyone's input.
enum class Promise : std::uint32_t { kSum, kSumOfPart, kAllInputs, kOnePartOfEach };

void fill(void* in, std::size_t count, std::uint64_t epoch, int rank, cudaStream_t stream);
/// Adds the number of wrong elements to *wrong. @param count of `out`; for all but kSum and kSumOfPart those of one
/// rank
void check(const void* out, std::size_t count, Promise promise, std::uint64_t epoch, int rank, int ranks,
           unsigned long long* wrong, cudaStream_t stream);

}  // namespace tensorwire::litmus
