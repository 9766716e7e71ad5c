// Element types and reduction operators of the collectives, and their names. Plain values; no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tensorwire::collective {

/// The numbers go on the wire (signature.hpp): never renumber.
enum class DType : std::uint8_t { kFloat32 = 1, kFloat16 = 2, kBfloat16 = 3 };
enum class Op : std::uint8_t { kSum = 1 };
enum class Algorithm : std::uint8_t { kOneShot = 1, kTwoShot = 2 };

[[nodiscard]] constexpr std::size_t element_bytes(DType dtype) noexcept { return dtype == DType::kFloat32 ? 4 : 2; }

[[nodiscard]] constexpr std::string_view name_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat32:
      return "fp32";
    case DType::kFloat16:
      return "fp16";
    case DType::kBfloat16:
      return "bf16";
  }
  return "unknown type";
}

[[nodiscard]] constexpr std::string_view name_of(Op op) noexcept { return op == Op::kSum ? "sum" : "unknown operator"; }

[[nodiscard]] constexpr std::string_view name_of(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::kOneShot:
      return "one-shot";
    case Algorithm::kTwoShot:
      return "two-shot";
  }
  return "unknown algorithm";
}

}  // namespace tensorwire::collective
