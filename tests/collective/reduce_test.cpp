// Every dispatch level gives the bits of the scalar reference; the scalar reference is right.
#include "collective/reduce.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tensorwire::collective {
namespace {

std::vector<SimdLevel> levels() {
  std::vector<SimdLevel> result{SimdLevel::kScalar};
  if (best_simd_level() >= SimdLevel::kAvx2) result.push_back(SimdLevel::kAvx2);
  if (best_simd_level() >= SimdLevel::kAvx512) result.push_back(SimdLevel::kAvx512);
  return result;
}

/// Random bits, with the awkward values (NaN, infinities, zeros, subnormals, largest) sprinkled in.
void fill(Random& random, DType dtype, std::byte* to, std::size_t count) {
  constexpr std::uint32_t kAwkward32[] = {0x7fc00001, 0xffa00000, 0x7f800000, 0xff800000, 0x80000000, 0,
                                          1,          0x807fffff, 0x7f7fffff, 0x00800000, 0x7f800001};
  constexpr std::uint16_t kAwkward16[] = {0x7e01, 0xfd00, 0x7c00, 0xfc00, 0x8000, 0,      1,      0x83ff,
                                          0x7bff, 0x0400, 0x7f81, 0x7f80, 0xff80, 0x0080, 0x7f7f, 0x3c00};
  for (std::size_t i = 0; i < count; ++i) {
    const bool awkward = random.chance(200'000);
    if (element_bytes(dtype) == 4) {
      const auto bits =
          awkward ? kAwkward32[random.below(std::size(kAwkward32))] : static_cast<std::uint32_t>(random.next());
      std::memcpy(to + 4 * i, &bits, 4);
    } else {
      const auto bits =
          awkward ? kAwkward16[random.below(std::size(kAwkward16))] : static_cast<std::uint16_t>(random.next());
      std::memcpy(to + 2 * i, &bits, 2);
    }
  }
}

/// One element of each operand, in the scalar kernel; the divisor of an average is their number.
std::uint32_t result_of(DType dtype, Op op, std::initializer_list<std::uint32_t> bits) {
  const std::vector<std::uint32_t> values{bits};
  std::vector<const std::byte*> operands;
  for (const std::uint32_t& value : values) operands.push_back(reinterpret_cast<const std::byte*>(&value));
  std::uint32_t out = 0;
  reduce_at(SimdLevel::kScalar, {dtype, op, static_cast<std::uint32_t>(values.size())}, operands,
            reinterpret_cast<std::byte*>(&out), nullptr, 1);
  return out;
}

float sum_one(DType dtype, std::initializer_list<std::uint32_t> bits, std::uint32_t* result_bits = nullptr) {
  std::vector<std::uint32_t> values{bits};
  std::vector<const std::byte*> operands;
  for (const std::uint32_t& value : values) operands.push_back(reinterpret_cast<const std::byte*>(&value));
  std::uint32_t out = 0;
  reduce_at(SimdLevel::kScalar, {dtype}, operands, reinterpret_cast<std::byte*>(&out), nullptr, 1);
  if (result_bits != nullptr) *result_bits = out;
  return std::bit_cast<float>(out);
}

std::uint32_t bits_sum(DType dtype, std::initializer_list<std::uint32_t> bits) {
  std::uint32_t out = 0;
  sum_one(dtype, bits, &out);
  return out;
}

/// The nearest value of a 16-bit type to `exact`, ties to even, found by search: independent of the code under test.
std::uint16_t nearest_half(double exact, int mantissa_bits, int bias) {
  const auto value_of = [&](std::uint32_t bits) {
    const std::uint32_t exponent = bits >> mantissa_bits;
    const double mantissa = bits & ((1U << mantissa_bits) - 1);
    const double scale = std::ldexp(1.0, -mantissa_bits);
    return exponent == 0 ? std::ldexp(mantissa * scale, 1 - bias)
                         : std::ldexp(1 + mantissa * scale, static_cast<int>(exponent) - bias);
  };
  const std::uint32_t infinity = ((1U << (15 - mantissa_bits)) - 1) << mantissa_bits;
  const double magnitude = std::fabs(exact);
  std::uint32_t low = 0;
  std::uint32_t high = infinity;  // value_of(infinity) is the value that would follow the largest: right for rounding
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (value_of(middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - value_of(low);
  const double above = value_of(high) - magnitude;
  const std::uint32_t chosen = below < above || (below == above && low % 2 == 0) ? low : high;
  return static_cast<std::uint16_t>(chosen | (std::signbit(exact) ? 0x8000U : 0U));
}

TEST(Reduce, EveryHalfSurvivesARoundTrip) {
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    const std::uint32_t infinity = dtype == DType::kFloat16 ? 0x7c00 : 0x7f80;
    const std::uint32_t nan = dtype == DType::kFloat16 ? 0x7e00 : 0x7fc0;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const bool is_nan = (bits & 0x7fff) > infinity;
      ASSERT_EQ(bits_sum(dtype, {bits}), is_nan ? nan : bits) << name_of(dtype) << " " << std::hex << bits;
    }
  }
}

TEST(Reduce, SumsOfHalvesAreRoundedToNearestEven) {
  Random random{7};
  for (int i = 0; i < 100'000; ++i) {
    // Sums of two fp16 values are exact in fp32 when their exponents are near, and in double always.
    const auto a = static_cast<std::uint16_t>(random.next() & 0xbfff);
    const auto b = static_cast<std::uint16_t>((a & 0x7c00) | (random.next() & 0x83ff));
    const auto exact = [](std::uint16_t half) {
      const int exponent = half >> 10 & 0x1f;
      const double mantissa = half & 0x3ff;
      const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      return (half & 0x8000) != 0 ? -magnitude : magnitude;
    };
    const double sum = exact(a) + exact(b);
    if (sum == 0) continue;
    ASSERT_EQ(bits_sum(DType::kFloat16, {a, b}), nearest_half(sum, 10, 15)) << std::hex << a << " + " << b;
  }
  for (int i = 0; i < 100'000; ++i) {
    const auto a = static_cast<std::uint32_t>(random.next() & 0xbfff);
    const auto b = (a & 0x7f80) | static_cast<std::uint32_t>(random.next() & 0x807f);
    const double sum = double{std::bit_cast<float>(a << 16)} + double{std::bit_cast<float>(b << 16)};
    if (sum == 0) continue;
    ASSERT_EQ(bits_sum(DType::kBfloat16, {a, b}), nearest_half(sum, 7, 127)) << std::hex << a << " + " << b;
  }
}

TEST(Reduce, OverflowAndInvalid) {
  EXPECT_EQ(bits_sum(DType::kFloat16, {0x7bff, 0x7bff}), 0x7c00U);  // 65504 + 65504
  EXPECT_EQ(bits_sum(DType::kFloat16, {0x7c00, 0xfc00}), 0x7e00U);  // inf - inf
  EXPECT_EQ(bits_sum(DType::kFloat16, {0x7bff, 0x4bff}), 0x7bffU);  // 65504 + 15.99: below the half-way point
  EXPECT_EQ(bits_sum(DType::kFloat16, {0x7bff, 0x4c00}), 0x7c00U);  // 65504 + 16: half-way, to even is infinity
  EXPECT_EQ(bits_sum(DType::kFloat32, {0x7f7fffff, 0x7f7fffff}), 0x7f800000U);
  EXPECT_EQ(bits_sum(DType::kFloat32, {0x7f800000, 0xff800000}), 0x7fc00000U);
  EXPECT_EQ(bits_sum(DType::kFloat32, {0xffa00001, 0x3f800000}), 0x7fc00000U);
  EXPECT_EQ(bits_sum(DType::kBfloat16, {0x7f7f, 0x7f7f}), 0x7f80U);
  EXPECT_EQ(bits_sum(DType::kBfloat16, {0xff81, 0x3f80}), 0x7fc0U);
}

TEST(Reduce, AddsInOrderInFp32) {
  const auto f = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  EXPECT_EQ(sum_one(DType::kFloat32, {f(1e8F), f(-1e8F), f(1)}), 1);
  EXPECT_EQ(sum_one(DType::kFloat32, {f(1), f(1e8F), f(-1e8F)}), 0);
  // 2048 + 1 + 1 in fp16: rounding after each addition would give 2048.
  EXPECT_EQ(bits_sum(DType::kFloat16, {0x6800, 0x3c00, 0x3c00}), 0x6801U);
}

TEST(Reduce, TheMaximumIsOfTheValuesAndNanWins) {
  constexpr std::uint32_t kOne = 0x3f800000, kMinusOne = 0xbf800000, kInfinity = 0x7f800000, kMinusZero = 0x80000000;
  EXPECT_EQ(result_of(DType::kFloat32, Op::kMax, {kOne, kMinusOne}), kOne);
  EXPECT_EQ(result_of(DType::kFloat32, Op::kMax, {kMinusOne, kOne, kInfinity}), kInfinity);
  EXPECT_EQ(result_of(DType::kFloat32, Op::kMax, {0xff800000, kMinusOne}), kMinusOne);
  EXPECT_EQ(result_of(DType::kFloat32, Op::kMax, {kMinusZero, 0}), 0U) << "+0 is the greater zero, whatever the order";
  EXPECT_EQ(result_of(DType::kFloat32, Op::kMax, {0, kMinusZero}), 0U);
  EXPECT_EQ(result_of(DType::kFloat32, Op::kMax, {kMinusZero, kMinusZero}), kMinusZero);
  for (const std::uint32_t nan : {0x7f800001U, 0xffc12345U}) {
    EXPECT_EQ(result_of(DType::kFloat32, Op::kMax, {nan, kInfinity}), 0x7fc00000U);
    EXPECT_EQ(result_of(DType::kFloat32, Op::kMax, {kInfinity, nan, kOne}), 0x7fc00000U);
  }
  EXPECT_EQ(result_of(DType::kFloat16, Op::kMax, {0x7bff, 0x7c00}), 0x7c00U);
  EXPECT_EQ(result_of(DType::kFloat16, Op::kMax, {0x0001, 0x8001}), 0x0001U);
  EXPECT_EQ(result_of(DType::kFloat16, Op::kMax, {0x3c00, 0xfd00}), 0x7e00U);
  EXPECT_EQ(result_of(DType::kBfloat16, Op::kMax, {0xbf80, 0x8000}), 0x8000U);
  EXPECT_EQ(result_of(DType::kBfloat16, Op::kMax, {0x7f81, 0x3f80}), 0x7fc0U);
  EXPECT_EQ(result_of(DType::kInt32, Op::kMax, {0x80000000, 0xffffffff}), 0xffffffffU);
  EXPECT_EQ(result_of(DType::kInt32, Op::kMax, {0x7fffffff, 0x80000000}), 0x7fffffffU);
}

TEST(Reduce, TheAverageScalesTheSumOnce) {
  const auto f = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  EXPECT_EQ(result_of(DType::kFloat32, Op::kAverage, {f(1), f(2), f(4.5F)}), f(7.5F * (1.0F / 3.0F)));
  EXPECT_EQ(result_of(DType::kFloat32, Op::kAverage, {f(3e38F), f(3e38F)}), 0x7f800000U) << "the sum overflows";
  EXPECT_EQ(result_of(DType::kFloat32, Op::kAverage, {0x7f800000, 0xff800000}), 0x7fc00000U);
  EXPECT_EQ(result_of(DType::kFloat32, Op::kAverage, {0x80000000, 0x80000000}), 0x80000000U);
  EXPECT_EQ(result_of(DType::kFloat16, Op::kAverage, {0x7bff, 0x7bff}), 0x7bffU) << "a sum in fp32 does not overflow";
  EXPECT_EQ(result_of(DType::kFloat16, Op::kAverage, {0x3c00, 0x3c01}), 0x3c00U) << "half-way: to even";
  EXPECT_EQ(result_of(DType::kFloat16, Op::kAverage, {0x3c01, 0x3c02}), 0x3c02U) << "half-way: to even";
  EXPECT_EQ(result_of(DType::kBfloat16, Op::kAverage, {0x3f80, 0x3f81}), 0x3f80U);
}

TEST(Reduce, IntegersWrapInSumsButNotInAverages) {
  const auto i = [](std::int32_t value) { return static_cast<std::uint32_t>(value); };
  EXPECT_EQ(result_of(DType::kInt32, Op::kSum, {0x7fffffff, 1}), 0x80000000U);
  EXPECT_EQ(result_of(DType::kInt32, Op::kSum, {i(-5), i(3)}), i(-2));
  EXPECT_EQ(result_of(DType::kInt32, Op::kAverage, {0x7fffffff, 0x7fffffff}), 0x7fffffffU);
  EXPECT_EQ(result_of(DType::kInt32, Op::kAverage, {0x80000000, 0x80000000, 0x80000000}), 0x80000000U);
  EXPECT_EQ(result_of(DType::kInt32, Op::kAverage, {i(-3), i(-4)}), i(-3)) << "towards zero";
  EXPECT_EQ(result_of(DType::kInt32, Op::kAverage, {3, 4}), 3U);
}

TEST(Reduce, EveryLevelGivesTheSameBits) {
  Random random{1};
  for (int round = 0; round < 3000; ++round) {
    const Reduction what{kDTypes[random.below(4)], kOps[random.below(3)], 1 + random.below(9)};
    const DType dtype = what.dtype;
    const std::size_t n = 1 + random.below(9);
    const std::size_t count = random.below(round % 10 == 0 ? 2000 : 200);
    const std::size_t bytes = count * element_bytes(dtype);
    constexpr std::size_t kSlack = 64;
    std::vector<std::vector<std::byte>> inputs(n, std::vector<std::byte>(bytes + kSlack));
    std::vector<const std::byte*> operands;
    for (auto& input : inputs) {
      const std::size_t shift = random.below(kSlack);
      fill(random, dtype, input.data() + shift, count);
      operands.push_back(input.data() + shift);
    }
    std::vector<std::byte> reference;
    for (const SimdLevel level : levels()) {
      const std::size_t shift = random.below(kSlack);
      const std::size_t second_shift = random.below(kSlack);
      std::vector<std::byte> out(bytes + 2 * kSlack, std::byte{0xa5});
      std::vector<std::byte> second = out;
      const bool twice = random.chance(500'000);
      reduce_at(level, what, operands, out.data() + shift, twice ? second.data() + second_shift : nullptr, count);
      const std::vector<std::byte> result(out.begin() + shift, out.begin() + shift + bytes);
      if (level == SimdLevel::kScalar) reference = result;
      ASSERT_EQ(result, reference) << name_of(level) << " " << name_of(dtype) << " " << name_of(what.op) << " n " << n
                                   << " count " << count;
      if (twice) {
        ASSERT_TRUE(
            std::equal(reference.begin(), reference.end(), second.begin() + static_cast<std::ptrdiff_t>(second_shift)));
      }
      for (std::size_t i = 0; i < out.size(); ++i) {
        if (i < shift || i >= shift + bytes) {
          ASSERT_EQ(out[i], std::byte{0xa5}) << "wrote outside of the output";
        }
        if (!twice || i < second_shift || i >= second_shift + bytes) {
          ASSERT_EQ(second[i], std::byte{0xa5}) << "wrote outside of the second output";
        }
      }
    }
  }
}

TEST(Reduce, OutputMayBeAnOperand) {
  Random random{2};
  for (const DType dtype : kDTypes) {
    for (const SimdLevel level : levels()) {
      constexpr std::size_t kCount = 333;
      const std::size_t bytes = kCount * element_bytes(dtype);
      std::vector<std::byte> a(bytes), b(bytes), apart(bytes);
      fill(random, dtype, a.data(), kCount);
      fill(random, dtype, b.data(), kCount);
      const std::vector<const std::byte*> operands{a.data(), b.data()};
      reduce_at(level, {dtype}, operands, apart.data(), nullptr, kCount);
      reduce_at(level, {dtype}, operands, b.data(), nullptr, kCount);
      EXPECT_EQ(b, apart) << name_of(level) << " " << name_of(dtype);
    }
  }
}

#if defined(__x86_64__)
TEST(Reduce, IgnoresTheCallersFloatModes) {
  const std::vector<std::uint32_t> a(64, 0x00000003);  // subnormal
  const std::vector<std::uint32_t> b(64, 0x3f800001);
  const std::vector<const std::byte*> subnormals{reinterpret_cast<const std::byte*>(a.data()),
                                                 reinterpret_cast<const std::byte*>(a.data())};
  const unsigned before = _mm_getcsr();
  for (const SimdLevel level : levels()) {
    std::vector<std::uint32_t> out(64);
    _mm_setcsr(before | 0x8040 | 0x6000);  // flush to zero, denormals are zero, round towards zero
    reduce_at(level, {DType::kFloat32}, subnormals, reinterpret_cast<std::byte*>(out.data()), nullptr, 64);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    EXPECT_EQ(out[0], 6U);
    EXPECT_EQ(after & ~0x3fU, (before | 0x8040 | 0x6000) & ~0x3fU) << "modes were not given back";
  }
}
#endif

}  // namespace
}  // namespace tensorwire::collective
