// Sums of tensors on the GPU, 16 bytes at a time, with the same bits as collective::reduce(): floating-point types in
// fp32, in the order given, rounded once to nearest even; a NaN result is the canonical one of its type.
#pragma once

#include <cstdint>
#include <cstring>

#include "collective/types.hpp"
#include "cuda/layout.hpp"

namespace tensorwire::cuda {

/// 16 bytes of a tensor in registers.
struct alignas(kUnitBytes) Unit {
  std::uint32_t words[4];
};

/// `first` ? a : b, word by word: a choice between references would keep both in memory.
__device__ inline Unit either(bool first, const Unit& a, const Unit& b) {
  Unit chosen;
#pragma unroll
  for (int i = 0; i < 4; ++i) chosen.words[i] = first ? a.words[i] : b.words[i];
  return chosen;
}

struct FloatSum {
  using Accumulator = float;
  static __device__ float combine(collective::Op op, float a, float b) {
    if (op != collective::Op::kMax) return a + b;
    if (a != a || b != b) return __uint_as_float(0x7fc00000);
    if (a > b) return a;
    if (b > a) return b;
    return __uint_as_float(__float_as_uint(a) & __float_as_uint(b));  // of two zeros, +0 is the greater
  }
  static __device__ float finish(collective::Op op, float sum, std::uint32_t ranks) {
    return op == collective::Op::kAverage ? sum * (1.0F / static_cast<float>(ranks)) : sum;
  }
};

struct Float32 : FloatSum {
  using Storage = std::uint32_t;
  static __device__ float widen(Storage bits) { return __uint_as_float(bits); }
  static __device__ Storage narrow(float value) { return value != value ? 0x7fc00000 : __float_as_uint(value); }
};

struct Bfloat16 : FloatSum {
  using Storage = std::uint16_t;
  static __device__ float widen(Storage bits) { return __uint_as_float(static_cast<std::uint32_t>(bits) << 16); }
  static __device__ Storage narrow(float value) {
    Storage bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return value != value ? 0x7fc0 : bits;
  }
};

struct Float16 : FloatSum {
  using Storage = std::uint16_t;
  static __device__ float widen(Storage bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
  static __device__ Storage narrow(float value) {
    Storage bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return value != value ? 0x7e00 : bits;
  }
};

struct Int32 {
  using Storage = std::uint32_t;
  using Accumulator = std::int64_t;
  static __device__ Accumulator widen(Storage bits) { return static_cast<std::int32_t>(bits); }
  static __device__ Storage narrow(Accumulator value) { return static_cast<Storage>(value); }
  static __device__ Accumulator combine(collective::Op op, Accumulator a, Accumulator b) {
    if (op == collective::Op::kMax) return a > b ? a : b;
    return a + b;
  }
  static __device__ Accumulator finish(collective::Op op, Accumulator sum, std::uint32_t ranks) {
    return op == collective::Op::kAverage ? sum / static_cast<Accumulator>(ranks) : sum;
  }
};

/// A unit as the elements of a type.
template <class Type>
struct ElementsOf {
  using Storage = typename Type::Storage;
  static constexpr int kCount = kUnitBytes / sizeof(Storage);

  static __device__ auto get(const Unit& unit, int i) {
    return Type::widen(static_cast<Storage>(unit.words[word_of(i)] >> shift_of(i)));
  }
  /// Rounds to the type. The unit's elements are put in ascending order into a unit of zeros.
  template <class Value>
  static __device__ void put(Unit& unit, int i, Value value) {
    unit.words[word_of(i)] |= static_cast<std::uint32_t>(Type::narrow(value)) << shift_of(i);
  }

 private:
  static constexpr bool kWide = sizeof(Storage) == 4;
  static constexpr __device__ int word_of(int i) { return kWide ? i : i / 2; }
  static constexpr __device__ int shift_of(int i) { return kWide ? 0 : i % 2 * 16; }
};

/// A unit's elements as they are being summed.
template <class Type>
class Sum {
 public:
  __device__ void add(collective::Op op, bool first, const Unit& unit) {
#pragma unroll
    for (int i = 0; i < Elements::kCount; ++i) {
      const auto value = Elements::get(unit, i);
      sums_[i] = first ? value : Type::combine(op, sums_[i], value);
    }
  }
  __device__ Unit result(collective::Op op, std::uint32_t ranks) const {
    Unit unit{};
#pragma unroll
    for (int i = 0; i < Elements::kCount; ++i) Elements::put(unit, i, Type::finish(op, sums_[i], ranks));
    return unit;
  }

 private:
  using Elements = ElementsOf<Type>;
  typename Type::Accumulator sums_[Elements::kCount];
};

/// A tensor of any alignment and length, in units. What lies behind its end reads as zero and is never written.
template <class Storage>
class Tensor {
 public:
  __device__ Tensor(const std::byte* from, std::byte* to, std::size_t count, bool aligned)
      : from_(reinterpret_cast<const Storage*>(from)),
        to_(reinterpret_cast<Storage*>(to)),
        count_(count),
        aligned_(aligned) {}

  __device__ Unit load(std::size_t unit) const {
    const std::size_t first = unit * kElements;
    if (aligned_ && first + kElements <= count_) return *reinterpret_cast<const Unit*>(from_ + first);
    Storage elements[kElements] = {};
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      if (first + i < count_) elements[i] = from_[first + i];
    }
    Unit whole;
    memcpy(&whole, elements, sizeof whole);
    return whole;
  }
  __device__ void store(std::size_t unit, const Unit& whole) const {
    const std::size_t first = unit * kElements;
    if (aligned_ && first + kElements <= count_) {
      *reinterpret_cast<Unit*>(to_ + first) = whole;
      return;
    }
    Storage elements[kElements];
    memcpy(elements, &whole, sizeof whole);
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      if (first + i < count_) to_[first + i] = elements[i];
    }
  }

 private:
  static constexpr int kElements = kUnitBytes / sizeof(Storage);
  const Storage* from_;
  Storage* to_;
  std::size_t count_;
  bool aligned_;
};

/// The units [first, first + size) of one lane, of `units` in all.
struct Share {
  std::size_t first;
  std::size_t size;
};
__device__ inline Share share_of_lane(std::size_t units, std::size_t lane_units) {
  const std::size_t first = min(units, lane_units * blockIdx.x);
  return {first, min(units, first + lane_units) - first};
}

template <class Type>
__device__ std::size_t units_of(std::size_t count) {
  return (count * sizeof(typename Type::Storage) + kUnitBytes - 1) / kUnitBytes;
}

}  // namespace tensorwire::cuda
