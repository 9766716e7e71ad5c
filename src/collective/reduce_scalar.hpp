// Scalar arithmetic of the reduction: the reference that every vector kernel equals bit for bit, and what does their
// tails. Internal to reduce*.cpp. Everything is static on purpose: each kernel file is compiled for its own
// instruction set, and a shared copy of an inline function could come from the wrong one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "collective/types.hpp"

namespace tensorwire::collective {
namespace {

struct Operands {
  const std::byte* const* pointers;
  std::size_t count;
};

[[maybe_unused]] inline float float_of(std::uint32_t bits) noexcept {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
[[maybe_unused]] inline std::uint32_t bits_of(float value) noexcept {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline constexpr std::uint32_t kCanonicalNan = 0x7fc00000;

[[maybe_unused]] inline float scale_of(std::uint32_t divisor) noexcept { return 1.0F / static_cast<float>(divisor); }

/// Accumulation of the floating-point types: in fp32, whatever they are stored as.
struct FloatArithmetic {
  using Accumulator = float;
  template <Op kOp>
  static float combine(float a, float b) noexcept {
    if constexpr (kOp != Op::kMax) return a + b;
    if (a != a || b != b) return float_of(kCanonicalNan);
    if (a > b) return a;
    if (b > a) return b;
    return float_of(bits_of(a) & bits_of(b));  // equal: differ at most in the sign of zero, and +0 is the greater
  }
  template <Op kOp>
  static float finish(float value, std::uint32_t divisor) noexcept {
    if constexpr (kOp == Op::kAverage) return value * scale_of(divisor);
    return value;
  }
};

/// 64 bits hold any sum of up to 2^32 elements; the sum is taken modulo 2^32 in the end.
struct ScalarInt32 {
  using Storage = std::uint32_t;
  using Accumulator = std::int64_t;
  static Accumulator widen(Storage bits) noexcept { return static_cast<std::int32_t>(bits); }
  static Storage narrow(Accumulator value) noexcept { return static_cast<Storage>(value); }
  template <Op kOp>
  static Accumulator combine(Accumulator a, Accumulator b) noexcept {
    if constexpr (kOp == Op::kMax) return a > b ? a : b;
    return a + b;
  }
  template <Op kOp>
  static Accumulator finish(Accumulator value, std::uint32_t divisor) noexcept {
    if constexpr (kOp == Op::kAverage) return value / static_cast<Accumulator>(divisor);
    return value;
  }
};

struct ScalarFloat32 : FloatArithmetic {
  using Storage = std::uint32_t;
  static float widen(Storage bits) noexcept { return float_of(bits); }
  static Storage narrow(float value) noexcept { return value != value ? kCanonicalNan : bits_of(value); }
};

struct ScalarBfloat16 : FloatArithmetic {
  using Storage = std::uint16_t;
  static float widen(Storage bits) noexcept { return float_of(std::uint32_t{bits} << 16); }
  static Storage narrow(float value) noexcept {
    if (value != value) return kCanonicalNan >> 16;
    const std::uint32_t bits = bits_of(value);
    // Half of the last kept place, less one if that place is even: ties go to even. Infinity stays, the largest
    // finite values carry into it.
    return static_cast<Storage>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

struct ScalarFloat16 : FloatArithmetic {
  using Storage = std::uint16_t;
  static float widen(Storage half) noexcept {
    const std::uint32_t sign = (half & 0x8000U) << 16;
    const std::uint32_t exponent = half >> 10 & 0x1f;
    const std::uint32_t mantissa = half & 0x3ff;
    if (exponent == 0x1f) return float_of(sign | 0x7f800000 | mantissa << 13);
    if (exponent != 0) return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    // Zero or subnormal: mantissa x 2^-24, exact in fp32.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return float_of(sign | bits_of(magnitude));
  }
  static Storage narrow(float value) noexcept {
    if (value != value) return 0x7e00;
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t sign = bits >> 16 & 0x8000;
    const std::uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x47800000) return static_cast<Storage>(sign | 0x7c00);  // 65536 and up
    if (magnitude >= 0x38800000) {                                            // normal: 2^-14 and up
      const std::uint32_t rebiased = magnitude - (112U << 23);
      return static_cast<Storage>(sign | (rebiased + 0xfff + (rebiased >> 13 & 1)) >> 13);
    }
    if (magnitude < 0x33000000) return static_cast<Storage>(sign);  // below half of 2^-24
    const std::uint32_t shift = 126 - (magnitude >> 23);            // of the full mantissa, to units of 2^-24
    const std::uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    const std::uint32_t half = 1U << (shift - 1);
    const std::uint32_t odd = mantissa >> shift & 1;
    return static_cast<Storage>(sign | (mantissa + half - 1 + odd) >> shift);
  }
};

/// Elements [from, to) one at a time.
template <class Scalar, Op kOp>
void reduce_scalar(Operands operands, std::byte* output, std::size_t from, std::size_t to,
                   std::uint32_t divisor) noexcept {
  using Storage = typename Scalar::Storage;
  for (std::size_t i = from; i < to; ++i) {
    const std::size_t at = i * sizeof(Storage);
    Storage element;
    std::memcpy(&element, operands.pointers[0] + at, sizeof element);
    typename Scalar::Accumulator sum = Scalar::widen(element);
    for (std::size_t k = 1; k < operands.count; ++k) {
      std::memcpy(&element, operands.pointers[k] + at, sizeof element);
      sum = Scalar::template combine<kOp>(sum, Scalar::widen(element));
    }
    element = Scalar::narrow(Scalar::template finish<kOp>(sum, divisor));
    std::memcpy(output + at, &element, sizeof element);
  }
}

}  // namespace
}  // namespace tensorwire::collective
