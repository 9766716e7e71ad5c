// Threads of a block that move data together through slots: what they load, store and where they meet.
#pragma once

#include "cuda/arithmetic.cuh"
#include "cuda/protocol.cuh"

namespace tensorwire::cuda {

/// Threads of a block that work together: all of them, or some warps.
struct Crew {
  std::uint32_t index;  ///< this thread's, within it
  std::uint32_t size;
  std::uint32_t barrier;  ///< its number; 0: the block's

  __device__ void meet() const { asm volatile("barrier.sync %0, %1;" ::"r"(barrier), "r"(size) : "memory"); }
};
__device__ inline Crew whole_block() { return {threadIdx.x, blockDim.x, 0}; }

/// Past the L1 cache, which may hold what a slot contained a turn of the ring ago.
__device__ inline Unit load_slot(const std::byte* slot, std::size_t unit) {
  Unit data;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(data.words[0]), "=r"(data.words[1]), "=r"(data.words[2]), "=r"(data.words[3])
               : "l"(slot + unit * kUnitBytes)
               : "memory");
  return data;
}

__device__ inline void store_slot(std::byte* slot, std::size_t unit, const Unit& data) {
  *reinterpret_cast<Unit*>(slot + unit * kUnitBytes) = data;
}

/// The last look at a unit of a slot.
__device__ inline Unit take_slot(const std::byte* slot, std::size_t unit) {
  const Unit data = load_slot(slot, unit);
  if constexpr (kLitmus) store_slot(const_cast<std::byte*>(slot), unit, {{~7U, ~7U, ~7U, ~7U}});
  return data;
}

/// For the units [0, size) of a piece, by all threads of a crew, `kBatch` of each at a time: load all, then use all,
/// which hides the memory's latency. Thread i has units i, i + crew.size, ..., whatever the batch.
template <std::uint32_t kBatch, class Loaded, class Load, class Use>
__device__ void in_batches(const Crew& crew, std::size_t size, Load load, Use use) {
  for (std::size_t base = crew.index; base < size; base += kBatch * crew.size) {
    Loaded loaded[kBatch];
#pragma unroll
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      if (base + i * crew.size < size) loaded[i] = load(base + i * crew.size);
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      if (base + i * crew.size < size) use(base + i * crew.size, loaded[i]);
    }
  }
}

}  // namespace tensorwire::cuda
