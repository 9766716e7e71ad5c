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

/// A decode step's all-reduce with what always follows it, row by row (a row is a token):
/// residual_out = sum over all ranks of in + residual_in; norm_out = residual_out / rms(residual_out) * weight.
struct AddNormJob {
  Peers peers;
  const std::byte* in = nullptr;
  const std::byte* residual_in = nullptr;
  const std::byte* weight = nullptr;  ///< of one row
  std::byte* residual_out = nullptr;  ///< may equal `in` or `residual_in`
  std::byte* norm_out = nullptr;      ///< may equal `in`
  std::uint32_t rows = 0;
  std::uint32_t row_units = 0;  ///< of 16 bytes
  std::uint32_t split = 1;      ///< blocks, a cluster, that share a row
  float epsilon = 0;
  bool one_plus = false;  ///< * (1 + weight) instead
};

}  // namespace tensorwire::cuda
