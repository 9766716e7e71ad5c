// What a kernel is given: where the scratch of every rank is mapped, what to do, and with which shape. Plain values,
// passed as kernel parameters, so a captured graph holds all it needs; what counts on from call to call is in device
// memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collective/types.hpp"
#include "cuda/layout.hpp"
#include "cuda/litmus.hpp"

struct CUstream_st;

namespace tensorwire::cuda {

/// cudaStream_t, without CUDA's headers.
using Stream = CUstream_st*;

/// Pinned host memory that the kernels of one rank see: the way in for an abort and the way out for an error.
struct Board {
  std::uint64_t error;     ///< a packed Failure (failure.hpp); 0: none. Written by kernels, once
  std::uint64_t error_ns;  ///< when, by the GPU's clock
  std::uint64_t abort;     ///< as `error`, written by the host
};

struct Peers {
  Layout layout;
  std::uint32_t rank = 0;
  std::array<std::byte*, kMaxRanks> scratch{};  ///< as mapped in this rank's GPU; its own too
  /// The beginning of this rank's own scratch (Layout::own_bytes), or a stand-in in its GPU's memory where the scratch
  /// is in the host's: every thread of a kernel reads it first, and across PCIe each would take its 30 ns in turn.
  std::byte* own = nullptr;
  Board* board = nullptr;      ///< as mapped in this rank's GPU
  std::uint64_t bound_ns = 0;  ///< of one wait, by the GPU's wall clock
  Operation operation;         ///< for the journal
  bool journal = true;         ///< whether it is kept
#ifdef TENSORWIRE_LITMUS
  Litmus litmus;
#endif
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

/// What some warps of each block of an exchange do: one side of a message, or a part of the reduction.
enum class TaskKind : std::uint8_t {
  kSend,
  kReceive,
  kReduce,  ///< receives the same from all peers, and sums it with this rank's own
  kCopy,    ///< from this rank to itself
};
inline constexpr std::uint8_t kNoTask = 0xff;
struct ExchangeTask {
  const std::byte* in = nullptr;  ///< kReduce: this rank's own
  std::byte* out = nullptr;
  std::size_t bytes = 0;
  std::uint32_t lanes = 1;
  std::uint32_t piece_units = 0;  ///< of 16 bytes, that go through a slot at a time; 0: by lines
  std::uint16_t first_thread = 0;
  std::uint16_t threads = 32;
  TaskKind kind = TaskKind::kCopy;
  std::uint8_t peer = 0;
  bool aligned = false;           ///< in and out on 16 bytes
  std::uint8_t behind = kNoTask;  ///< a task that sends what this one overwrites: piece by piece before it
};
/// One for each side of a channel with each peer, and one for this rank itself; each meets at a barrier of its own, of
/// which a block has 16.
inline constexpr std::uint32_t kMostTasks = 2 * (kMaxRanks - 1) + 1;

struct ExchangeJob {
  Peers peers;
  std::array<ExchangeTask, kMostTasks> tasks{};
  std::uint32_t size = 0;                    ///< tasks
  collective::Op op = collective::Op::kSum;  ///< of kReduce
};

/// What a norm is quantised to, a byte each.
enum class QuantType : std::uint8_t {
  kFloat8,  ///< e4m3, up to 448
  kInt8,    ///< -127 to 127
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
  std::uint32_t rounds = 0;     ///< rows of each cluster, of the first `longer` one more
  std::uint32_t longer = 0;
  float epsilon = 0;
  bool one_plus = false;  ///< * (1 + weight) instead

  std::byte* quant_out = nullptr;      ///< null: not wanted; then norm_out is
  const float* quant_scale = nullptr;  ///< null: a scale for each row, to row_scales
  float* row_scales = nullptr;
  QuantType quant_type = QuantType::kFloat8;
};

}  // namespace tensorwire::cuda
