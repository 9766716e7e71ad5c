// One set of kernels per instruction set, and the loop that they share. Internal to reduce*.cpp.
#pragma once

#include "collective/reduce_scalar.hpp"

namespace tensorwire::collective {

/// Elements [from, to) of all operands, into the same elements of `output`. `divisor`: of averages.
using Kernel = void (*)(const std::byte* const* operands, std::size_t operand_count, std::byte* output,
                        std::size_t from, std::size_t to, std::uint32_t divisor) noexcept;

/// Of one type.
struct TypeKernels {
  Kernel sum;
  Kernel max;
  Kernel average;
};

struct Kernels {
  TypeKernels float32;
  TypeKernels float16;
  TypeKernels bfloat16;
  TypeKernels int32;

  [[nodiscard]] Kernel of(DType dtype, Op op) const noexcept {
    const TypeKernels& type = dtype == DType::kFloat32    ? float32
                              : dtype == DType::kFloat16  ? float16
                              : dtype == DType::kBfloat16 ? bfloat16
                                                          : int32;
    return op == Op::kSum ? type.sum : op == Op::kMax ? type.max : type.average;
  }
};

[[nodiscard]] const Kernels& scalar_kernels() noexcept;
[[nodiscard]] const Kernels& avx2_kernels() noexcept;
[[nodiscard]] const Kernels& avx512_kernels() noexcept;

namespace {

template <class Scalar, Op kOp>
void reduce_all_scalar(const std::byte* const* operands, std::size_t operand_count, std::byte* output, std::size_t from,
                       std::size_t to, std::uint32_t divisor) noexcept {
  reduce_scalar<Scalar, kOp>({operands, operand_count}, output, from, to, divisor);
}

template <class Scalar>
constexpr TypeKernels kernels_of_scalar() noexcept {
  return {reduce_all_scalar<Scalar, Op::kSum>, reduce_all_scalar<Scalar, Op::kMax>,
          reduce_all_scalar<Scalar, Op::kAverage>};
}

/// Vector: Register, kElements per register, load (widening), combine (two registers by an operator), scaled (by a
/// float), store (narrowing; NaN made canonical), and Scalar. Four registers at a time hide the latency of the
/// additions, which must stay in operand order.
template <class Vector, Op kOp>
void reduce_vector(const std::byte* const* operands, std::size_t operand_count, std::byte* output, std::size_t from,
                   std::size_t to, std::uint32_t divisor) noexcept {
  constexpr std::size_t kUnroll = 4;
  constexpr std::size_t kBytes = Vector::kElements * sizeof(typename Vector::Scalar::Storage);
  using Register = typename Vector::Register;
  const auto combine = [](Register a, Register b) { return Vector::template combine<kOp>(a, b); };
  const auto finish = [&](Register value) {
    if constexpr (kOp == Op::kAverage) value = Vector::scaled(value, scale_of(divisor));
    return Vector::narrow(value);
  };
  std::size_t i = from;
  std::size_t at = from * sizeof(typename Vector::Scalar::Storage);
  for (; i + kUnroll * Vector::kElements <= to; i += kUnroll * Vector::kElements, at += kUnroll * kBytes) {
    Register sum[kUnroll];
    for (std::size_t u = 0; u < kUnroll; ++u) sum[u] = Vector::load(operands[0] + at + u * kBytes);
    for (std::size_t k = 1; k < operand_count; ++k) {
      const std::byte* operand = operands[k] + at;
      for (std::size_t u = 0; u < kUnroll; ++u) sum[u] = combine(sum[u], Vector::load(operand + u * kBytes));
    }
    for (std::size_t u = 0; u < kUnroll; ++u) Vector::store(output + at + u * kBytes, finish(sum[u]));
  }
  for (; i + Vector::kElements <= to; i += Vector::kElements, at += kBytes) {
    Register sum = Vector::load(operands[0] + at);
    for (std::size_t k = 1; k < operand_count; ++k) sum = combine(sum, Vector::load(operands[k] + at));
    Vector::store(output + at, finish(sum));
  }
  reduce_scalar<typename Vector::Scalar, kOp>({operands, operand_count}, output, i, to, divisor);
}

template <class Vector>
constexpr TypeKernels kernels_of_vector() noexcept {
  return {reduce_vector<Vector, Op::kSum>, reduce_vector<Vector, Op::kMax>, reduce_vector<Vector, Op::kAverage>};
}

/// The average divides integers of 64 bits, for which there is no vector instruction.
template <class Vector>
constexpr TypeKernels kernels_of_integers() noexcept {
  return {reduce_vector<Vector, Op::kSum>, reduce_vector<Vector, Op::kMax>,
          reduce_all_scalar<typename Vector::Scalar, Op::kAverage>};
}

}  // namespace
}  // namespace tensorwire::collective
