#include "cli/bench/workload.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.hpp"
#include "wire/icrc.hpp"

namespace tensorwire::cli {

namespace {

using collective::DType;

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

int significand_bits(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 11;
    case DType::kBfloat16:
      return 8;
    case DType::kFloat32:
      break;
  }
  return 24;
}

/// Half an ulp of the type at `value`, plus what `ranks` fp32 additions of numbers below 2 may lose.
double tolerance(DType dtype, double value, std::uint32_t ranks) {
  const double half_ulp = std::ldexp(std::max(std::abs(value), 0x1p-14), -significand_bits(dtype));
  return half_ulp + 2.0 * ranks * ranks * 0x1p-24;
}

}  // namespace

void fill_input(DType dtype, std::uint32_t rank, std::uint64_t iteration, std::span<std::byte> out) {
  const Pattern pattern = pattern_of(dtype);
  const std::uint64_t stream = mix64(mix64(iteration + 1) ^ (std::uint64_t{rank} << 32));
  std::uint64_t index = 0;
  for (std::size_t at = 0; at < out.size(); at += sizeof index, ++index) {
    const std::uint64_t word = (mix64(stream + index * 0x9e3779b97f4a7c15ULL) & pattern.keep) | pattern.set;
    std::memcpy(out.data() + at, &word, std::min(sizeof word, out.size() - at));
  }
}

std::uint64_t count_wrong(DType dtype, std::uint32_t ranks, std::uint64_t iteration,
                          std::span<const std::byte> result) {
  const std::size_t size = collective::element_bytes(dtype);
  const std::size_t count = result.size() / size;
  std::vector<double> expected(count, 0.0);
  std::vector<std::byte> input(result.size());
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    fill_input(dtype, rank, iteration, input);
    for (std::size_t i = 0; i < count; ++i) expected[i] += element(dtype, input.data() + i * size);
  }
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double difference = std::abs(element(dtype, result.data() + i * size) - expected[i]);
    if (!(difference <= tolerance(dtype, expected[i], ranks))) ++wrong;
  }
  return wrong;
}

std::uint32_t result_hash(std::span<const std::byte> result) { return ~wire::crc_update(~0U, result); }

}  // namespace tensorwire::cli
