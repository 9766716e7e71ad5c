// The reduction of n vectors on a CPU: in the given order, floating-point types accumulated in fp32 and rounded once to
// nearest even. Every dispatch level gives the same bits; a NaN result is always the one canonical quiet NaN of its
// type (0x7fc00000, 0x7e00, 0x7fc0), because processors disagree on which operand's payload survives. What sum, maximum
// and average do at the edges of each type is tabulated in docs/collectives.md.
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

/// What is done with the operands.
struct Reduction {
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  std::uint32_t divisor = 1;   ///< average only: how many contributions there are, some of which may be summed already
  bool stream_second = false;  ///< second_output is for another core (base/stream_copy.hpp)
};

/// output[i] = second_output[i] = operands[0][i] op operands[1][i] op ... in that order, for `count` elements.
/// `output` may equal any operand exactly; else nothing may overlap. `second_output` may be null. No alignment needed.
void reduce(const Reduction& what, std::span<const std::byte* const> operands, std::byte* output,
            std::byte* second_output, std::size_t count) noexcept;

/// The same at a given level, which must not be above best_simd_level(): for tests and benchmarks.
void reduce_at(SimdLevel level, const Reduction& what, std::span<const std::byte* const> operands, std::byte* output,
               std::byte* second_output, std::size_t count) noexcept;

}  // namespace tensorwire::collective
