// What a kernel is given: where the scratch of every rank is mapped, what to do, and with which shape. Plain values,
// passed as kernel parameters, so a captured graph holds all it needs; what counts on from call to call is in device
// memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collective/types.hpp"
#include "cuda/layout.hpp"

struct CUstream_st;

namespace tensorwire::cuda {

/// cudaStream_t, without CUDA's headers.
using Stream = CUstream_st*;

/// Pinned host memory that the kernels of one rank see: the way in for an abort and the way out for an error.
struct Board {
  std::uint64_t error;  ///< a packed Failure (failure.hpp); 0: none. Written by kernels, once
  std::uint64_t abort;  ///< likewise, written by the host
};

struct Peers {
  Layout layout;
  std::uint32_t rank = 0;
  std::array<std::byte*, kMaxRanks> scratch{};  ///< as mapped in this rank's GPU; its own too
  Board* board = nullptr;                       ///< as mapped in this rank's GPU
  std::uint64_t bound_ns = 0;                   ///< of one wait, by the GPU's wall clock
};

/// out[i] = op over all ranks of in[i]; in rank order, accumulated as docs/collectives.md says.
struct AllReduceJob {
  Peers peers;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;  ///< may equal `in`
  std::size_t count = 0;
  collective::Op op = collective::Op::kSum;
  bool aligned = false;           ///< in and out both on 16 bytes
  std::size_t lane_units = 0;     ///< each lane's share of the tensor, or of a rank's part of it, in units of 16 bytes
  std::uint32_t piece_units = 0;  ///< slots only: how much goes through a slot at a time, in units of 16 bytes
};

}  // namespace tensorwire::cuda
