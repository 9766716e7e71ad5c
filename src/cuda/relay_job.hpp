// What a relay's kernel is given: plain values, so that a captured graph holds all it needs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/types.hpp"
#include "cuda/journal.hpp"
#include "cuda/kernels.hpp"
#include "cuda/relay_board.hpp"

namespace tensorwire::cuda {

/// A tensor as a rail moves it: of each of its parts the same slice.
struct RelayTensor {
  std::byte* data = nullptr;  ///< the slice of the first part
  std::uint32_t parts = 0;    ///< 0: there is none
  std::uint64_t stride = 0;   ///< bytes from part to part
  std::uint64_t bytes = 0;    ///< of a slice
};

inline constexpr std::uint32_t kNoPart = ~std::uint32_t{0};

/// What one rail does: it has windows, doorbells and a state of its own, and knows nothing of the others.
struct RelayJob {
  RelayBoard* board = nullptr;      ///< as mapped in the GPU, like the windows
  RelayState* state = nullptr;      ///< device memory
  std::byte* windows_in = nullptr;  ///< kRelayWindows, each of window_bytes
  std::byte* windows_out = nullptr;
  std::uint64_t window_bytes = 0;
  RelayTensor in;  ///< only read
  RelayTensor out;
  std::uint64_t piece_bytes = 0;  ///< of each slice, and round: whole units
  std::uint64_t rounds = 0;
  Doorbell doorbell{};     ///< all that is the same in every round
  std::uint32_t gate = 0;  ///< as Doorbell::gate: what this kernel closes
  std::uint32_t element_bytes = 1;
  std::uint64_t bound_ns = 0;  ///< of one wait, by the GPU's wall clock
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint32_t divisor = 1;  ///< of averages
  /// The host gathers in place: a piece goes to this rank's part of the results' window at once.
  bool gathers = false;
  /// The part of `out` that is a part of this rank's own `in`, and which one of that; kNoPart: none is.
  std::uint32_t own_out = kNoPart;
  std::uint32_t own_in = 0;
};

struct RelayJobs {
  RelayJob rail[kMostRails];
  std::uint32_t rails = 1;  ///< that take part
};

/// Fills windows, rings, waits, and empties them. Returns a cudaError_t, as the launch gave it.
[[nodiscard]] int launch_relay(const RelayJobs& jobs, Grid grid, Stream stream) noexcept;
/// The same where each round's window brings the pieces of all ranks, and `out` is their sum in rank order.
[[nodiscard]] int launch_relay_sum(const RelayJobs& jobs, collective::DType dtype, collective::Op op, Grid grid,
                                   Stream stream) noexcept;
/// All-reduce in two rounds for each piece: the chunks of all ranks to who sums them, and the sums to all.
[[nodiscard]] int launch_relay_two_shot(const RelayJobs& jobs, collective::DType dtype, collective::Op op, Grid grid,
                                        Stream stream) noexcept;
[[nodiscard]] int load_relay_kernels() noexcept;

// The same in parts, of one round each, so that a stream may do something else meanwhile (relay_split.cu).
/// Fills a window and rings.
[[nodiscard]] int launch_relay_post(const RelayJobs& jobs, Grid grid, Stream stream) noexcept;
/// Waits, and sums the pieces of all ranks.
[[nodiscard]] int launch_relay_collect_sum(const RelayJobs& jobs, collective::DType dtype, collective::Op op, Grid grid,
                                           Stream stream) noexcept;
/// Between the rounds of a two-shot: waits, sums this rank's chunk, and rings for the sums to go to all.
[[nodiscard]] int launch_relay_turn(const RelayJobs& jobs, collective::DType dtype, collective::Op op, Grid grid,
                                    Stream stream) noexcept;
/// Waits, and copies the sums of all out.
[[nodiscard]] int launch_relay_collect(const RelayJobs& jobs, Grid grid, Stream stream) noexcept;
[[nodiscard]] int load_relay_split_kernels() noexcept;

}  // namespace tensorwire::cuda
