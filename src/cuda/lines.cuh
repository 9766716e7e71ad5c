// Lines: 16 bytes that hold 8 of data and the flag that says whose they are, twice, in each of the two words that are
// stored and loaded whole.
#pragma once

#include "cuda/arithmetic.cuh"
#include "cuda/protocol.cuh"

namespace tensorwire::cuda {

__device__ inline Words line_of(std::uint32_t first, std::uint32_t second, std::uint32_t flag) {
  const std::uint64_t high = static_cast<std::uint64_t>(flag) << 32;
  return {high | first, high | second};
}

/// A unit is two lines, `stride` apart, so that the threads of a warp write and read whole sectors.
struct UnitLines {
  Words first;
  Words second;
};

__device__ inline void store_lines(std::byte* lines, std::size_t unit, std::size_t stride, const Unit& data,
                                   std::uint32_t flag) {
  store_words(lines + unit * kLineBytes, line_of(data.words[0], data.words[1], flag));
  store_words(lines + (unit + stride) * kLineBytes, line_of(data.words[2], data.words[3], flag));
}

__device__ inline UnitLines load_lines(const std::byte* lines, std::size_t unit, std::size_t stride) {
  return {load_words(lines + unit * kLineBytes), load_words(lines + (unit + stride) * kLineBytes)};
}

__device__ inline bool bear(const Peers& peers, const UnitLines& lines, std::uint32_t flag) {
  const auto of = [](std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); };
  if (planted(peers, Mistake::kLinesHalfLooked)) return of(lines.first.low) == flag && of(lines.second.low) == flag;
  return of(lines.first.low) == flag && of(lines.first.high) == flag && of(lines.second.low) == flag &&
         of(lines.second.high) == flag;
}

__device__ inline Unit unit_of(const UnitLines& lines) {
  return {{static_cast<std::uint32_t>(lines.first.low), static_cast<std::uint32_t>(lines.first.high),
           static_cast<std::uint32_t>(lines.second.low), static_cast<std::uint32_t>(lines.second.high)}};
}

}  // namespace tensorwire::cuda
