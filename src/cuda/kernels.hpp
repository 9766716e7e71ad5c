// The kernels, as host functions that launch them. No state.
#pragma once

#include <cstdint>

#include "collective/types.hpp"
#include "cuda/job.hpp"

namespace tensorwire::cuda {

struct Grid {
  std::uint32_t lanes = 1;  ///< blocks; the same on all ranks
  std::uint32_t threads = 512;
  bool early = true;  ///< programmatic dependent launch: the grid may stand ready before its predecessor is complete
};

/// One-shot over lines: every rank's tensor to every other. For what fits: layout.lines of each lane.
/// Returns a cudaError_t, as the launch gave it.
[[nodiscard]] int launch_lines(const AllReduceJob& job, collective::DType dtype, Grid grid, Stream stream) noexcept;
/// One-shot over words, in rounds of any number. For floating-point types.
[[nodiscard]] int launch_words(const AllReduceJob& job, collective::DType dtype, Grid grid, Stream stream) noexcept;
/// Through slots, piece by piece, for any type and size: one-shot for two ranks, two-shot for more.
[[nodiscard]] int launch_slots(const AllReduceJob& job, collective::DType dtype, Grid grid, Stream stream) noexcept;

/// Messages over channels, as many as there are tasks. The threads of the grid are those of all tasks.
[[nodiscard]] int launch_exchange(const ExchangeJob& job, Grid grid, Stream stream) noexcept;
/// The same with one task that reduces tensors of a type.
[[nodiscard]] int launch_reduce_scatter(const ExchangeJob& job, collective::DType dtype, Grid grid,
                                        Stream stream) noexcept;
/// The most threads of either.
inline constexpr std::uint32_t kExchangeThreads = 1024;
inline constexpr std::uint32_t kReduceScatterThreads = 512;

/// The most blocks that share a row of launch_add_norm(): what every GPU with clusters has.
inline constexpr std::uint32_t kMostSplit = 8;
/// All-reduce, residual and RMSNorm. grid.lanes is a multiple of job.split; a block's part of a row is at most four
/// units for each thread, and no more than a round of words.
[[nodiscard]] int launch_add_norm(const AddNormJob& job, collective::DType dtype, Grid grid, Stream stream) noexcept;

/// Pinned memory through which launch_clock()'s kernel is asked what the GPU's clock shows.
struct ClockBoard {
  std::uint64_t asked;     ///< the number of the question, from 1
  std::uint64_t answered;  ///< of the answer
  std::uint64_t ns;        ///< the answer
};
/// Answers questions 1 to `questions`, or gives up when it has run for `bound_ns`.
[[nodiscard]] int launch_clock(ClockBoard* board, std::uint64_t questions, std::uint64_t bound_ns,
                               Stream stream) noexcept;

/// Have the driver load the kernels for the current device now, and return a cudaError_t. A kernel that is loaded when
/// it is first launched may have to wait until the GPU is idle, which it never is while another one waits for a peer.
[[nodiscard]] int load_lines_kernels() noexcept;
[[nodiscard]] int load_words_kernels() noexcept;
[[nodiscard]] int load_slots_kernels() noexcept;
[[nodiscard]] int load_add_norm_kernels() noexcept;
[[nodiscard]] int load_exchange_kernels() noexcept;
[[nodiscard]] int load_clock_kernel() noexcept;

}  // namespace tensorwire::cuda
