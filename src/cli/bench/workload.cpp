#include "cli/bench/workload.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.hpp"
#include "wire/icrc.hpp"

namespace tensorwire::cli {

namespace {

using collective::DType;

constexpr std::size_t kBlockWords = 64;

/// Which bits of a random word are kept, and which are set: the exponent is one of two that make |x| in [0.5, 2).
struct Pattern {
  std::uint64_t keep;
  std::uint64_t set;
};

Pattern pattern_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {0x87ff'87ff'87ff'87ffULL, 0x3800'3800'3800'3800ULL};
    case DType::kBfloat16:
      return {0x80ff'80ff'80ff'80ffULL, 0x3f00'3f00'3f00'3f00ULL};
    case DType::kFloat32:
    case DType::kInt32:  // dtype_of() knows none
      break;
  }
  return {0x80ff'ffff'80ff'ffffULL, 0x3f00'0000'3f00'0000ULL};
}

/// Exact for the normal numbers that fill_input() makes and for every finite sum of them.
double half_to_double(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0x1f) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction + 0x400, exponent - 25);
}

double element(DType dtype, const std::byte* at) {
  if (dtype == DType::kFloat32) {
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return dtype == DType::kFloat16 ? half_to_double(bits) : std::bit_cast<float>(std::uint32_t{bits} << 16);
}

int significand_bits(DType dtype) { return dtype == DType::kFloat16 ? 11 : 8; }

/// What the right result may differ by from the exact sum: `ranks` - 1 fp32 additions, each off by at most 2^-24 of the
/// magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, 4.2), and for 16-bit types one rounding more.
double tolerance(DType dtype, double sum, double sum_of_magnitudes, std::uint32_t ranks) {
  const double accumulated = (ranks - 1) * 0x1p-24 * sum_of_magnitudes;
  if (dtype == DType::kFloat32) return accumulated;
  return accumulated + std::ldexp(std::max(std::abs(sum), 0x1p-14), -significand_bits(dtype));
}

}  // namespace

// A hash of rank, iteration and index that runs at memory speed: one block of well-mixed words, made once, and for each
// block of the tensor a key that they are combined with.
void fill_input(DType dtype, std::uint32_t rank, std::uint64_t iteration, std::span<std::byte> out) {
  static const std::array<std::uint64_t, kBlockWords> kWords = [] {
    std::array<std::uint64_t, kBlockWords> words{};
    Random random{1};
    for (std::uint64_t& word : words) word = random.next();
    return words;
  }();
  const Pattern pattern = pattern_of(dtype);
  Random keys{mix64(iteration + 1) ^ (std::uint64_t{rank} << 32)};
  std::array<std::uint64_t, kBlockWords> block;
  for (std::size_t at = 0; at < out.size(); at += sizeof block) {
    const std::uint64_t key = keys.next();
    for (std::size_t i = 0; i < kBlockWords; ++i) block[i] = ((kWords[i] ^ key) & pattern.keep) | pattern.set;
    std::memcpy(out.data() + at, block.data(), std::min(sizeof block, out.size() - at));
  }
}

std::uint64_t count_wrong(DType dtype, std::uint32_t ranks, std::uint64_t iteration,
                          std::span<const std::byte> result) {
  const std::size_t size = collective::element_bytes(dtype);
  const std::size_t count = result.size() / size;
  std::vector<double> expected(count, 0.0);
  std::vector<double> magnitudes(count, 0.0);
  std::vector<std::byte> input(result.size());
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    fill_input(dtype, rank, iteration, input);
    for (std::size_t i = 0; i < count; ++i) {
      const double value = element(dtype, input.data() + i * size);
      expected[i] += value;
      magnitudes[i] += std::abs(value);
    }
  }
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double difference = std::abs(element(dtype, result.data() + i * size) - expected[i]);
    if (!(difference <= tolerance(dtype, expected[i], magnitudes[i], ranks))) ++wrong;
  }
  return wrong;
}

std::uint32_t result_hash(std::span<const std::byte> result) { return ~wire::crc_update(~0U, result); }

}  // namespace tensorwire::cli
