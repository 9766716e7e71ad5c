// The reduction of n vectors on a CPU: in the given order, accumulated in fp32, rounded once to nearest even. Every
// dispatch level gives the same bits; a NaN result is always the one canonical quiet NaN of its type (0x7fc00000,
// 0x7e00, 0x7fc0), because processors disagree on which operand's payload survives.
//
// Pure functions; no state but the level, chosen once from CPUID.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "collective/types.hpp"

namespace tensorwire::collective {

enum class SimdLevel : std::uint8_t { kScalar, kAvx2, kAvx512 };

[[nodiscard]] std::string_view name_of(SimdLevel level) noexcept;
/// The best level that this CPU and operating system run.
[[nodiscard]] SimdLevel best_simd_level() noexcept;

/// output[i] = second_output[i] = operands[0][i] + operands[1][i] + ... in that order, for `count` elements.
/// `output` may equal any operand exactly; else nothing may overlap. `second_output` may be null. No alignment needed.
void reduce(DType dtype, Op op, std::span<const std::byte* const> operands, std::byte* output, std::byte* second_output,
            std::size_t count) noexcept;

/// The same at a given level, which must not be above best_simd_level(): for tests and benchmarks.
void reduce_at(SimdLevel level, DType dtype, Op op, std::span<const std::byte* const> operands, std::byte* output,
               std::byte* second_output, std::size_t count) noexcept;

}  // namespace tensorwire::collective
