// The tensors of the comparison: each element is a hash of rank, index and operation, a whole number of 16 bits, so
// that the fp32 sum of up to 256 ranks is exact in any order and the right result is known bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorwire::versus {

void fill(std::uint32_t rank, std::uint64_t operation, std::span<float> input);

/// Elements of `result` that are not the sum of what all ranks put in.
[[nodiscard]] std::uint64_t count_wrong(std::uint32_t ranks, std::uint64_t operation, std::span<const float> result);

}  // namespace tensorwire::versus
