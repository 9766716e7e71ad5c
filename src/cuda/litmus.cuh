// How kernels run the litmus build (litmus.hpp).
#pragma once

#include "cuda/job.hpp"

namespace tensorwire::cuda {

#ifdef TENSORWIRE_LITMUS
inline constexpr bool kLitmus = true;
__device__ inline bool planted(const Peers& peers, Mistake mistake) { return peers.litmus.mistake == mistake; }
/// Up to 20 us, for one warp in 16.
__device__ inline void between_steps(const Peers& peers, std::uint32_t step, std::uint64_t number) {
  std::uint64_t hash = (peers.litmus.seed ^ number << 24 ^ std::uint64_t{step} << 16 ^ std::uint64_t{peers.rank} << 12 ^
                        blockIdx.x << 5 ^ threadIdx.x / 32) *
                       0x9e3779b97f4a7c15;
  hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9;
  hash ^= hash >> 32;
  if (hash % 16 == 0) __nanosleep(static_cast<unsigned>(hash / 16 % 20'000));
}
#else
inline constexpr bool kLitmus = false;
__device__ inline constexpr bool planted(const Peers&, Mistake) { return false; }
__device__ inline void between_steps(const Peers&, std::uint32_t, std::uint64_t) {}
#endif

}  // namespace tensorwire::cuda
