// One set of kernels per instruction set, and the loop that they share. Internal to reduce*.cpp.
#pragma once

#include "collective/reduce_scalar.hpp"

namespace tensorwire::collective {

/// Elements [from, to) of all operands, into the same elements of `output`.
using Kernel = void (*)(const std::byte* const* operands, std::size_t operand_count, std::byte* output,
                        std::size_t from, std::size_t to) noexcept;

struct Kernels {
  Kernel float32;
  Kernel float16;
  Kernel bfloat16;
};

[[nodiscard]] const Kernels& scalar_kernels() noexcept;
[[nodiscard]] const Kernels& avx2_kernels() noexcept;
[[nodiscard]] const Kernels& avx512_kernels() noexcept;

namespace {

/// Vector: Register, kElements per register, load (widening), add, store (narrowing; NaN made canonical), and Scalar.
/// Four registers at a time hide the latency of the additions, which must stay in operand order.
template <class Vector>
void reduce_vector(const std::byte* const* operands, std::size_t operand_count, std::byte* output, std::size_t from,
                   std::size_t to) noexcept {
  constexpr std::size_t kUnroll = 4;
  constexpr std::size_t kBytes = Vector::kElements * sizeof(typename Vector::Scalar::Storage);
  std::size_t i = from;
  std::size_t at = from * sizeof(typename Vector::Scalar::Storage);
  for (; i + kUnroll * Vector::kElements <= to; i += kUnroll * Vector::kElements, at += kUnroll * kBytes) {
    typename Vector::Register sum[kUnroll];
    for (std::size_t u = 0; u < kUnroll; ++u) sum[u] = Vector::load(operands[0] + at + u * kBytes);
    for (std::size_t k = 1; k < operand_count; ++k) {
      const std::byte* operand = operands[k] + at;
      for (std::size_t u = 0; u < kUnroll; ++u) sum[u] = Vector::add(sum[u], Vector::load(operand + u * kBytes));
    }
    for (std::size_t u = 0; u < kUnroll; ++u) Vector::store(output + at + u * kBytes, Vector::narrow(sum[u]));
  }
  for (; i + Vector::kElements <= to; i += Vector::kElements, at += kBytes) {
    typename Vector::Register sum = Vector::load(operands[0] + at);
    for (std::size_t k = 1; k < operand_count; ++k) sum = Vector::add(sum, Vector::load(operands[k] + at));
    Vector::store(output + at, Vector::narrow(sum));
  }
  reduce_scalar<typename Vector::Scalar>({operands, operand_count}, output, i, to);
}

}  // namespace
}  // namespace tensorwire::collective
