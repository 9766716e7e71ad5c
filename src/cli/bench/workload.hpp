// The tensors of a benchmark: fresh seeded input for every operation, the fp64 sum that its result is held against, and
// a hash by which ranks compare results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/types.hpp"

namespace tensorwire::cli {

/// Fills `out` with elements whose magnitudes are in [0.5, 2), signs mixed: a function of (rank, iteration, element
/// index) alone. out.size() is a multiple of the element size.
void fill_input(collective::DType dtype, std::uint32_t rank, std::uint64_t iteration, std::span<std::byte> out);

/// Elements of `result` that are further from the fp64 sum of all ranks' inputs than one rounding to the type (half an
/// ulp) and the fp32 accumulation allow.
[[nodiscard]] std::uint64_t count_wrong(collective::DType dtype, std::uint32_t ranks, std::uint64_t iteration,
                                        std::span<const std::byte> result);

/// CRC-32: equal on all ranks when their results are bit-identical.
[[nodiscard]] std::uint32_t result_hash(std::span<const std::byte> result);

}  // namespace tensorwire::cli
