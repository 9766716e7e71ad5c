// What a relay has for each rail: windows, doorbells, and the state that its kernels keep on the GPU.
#pragma once

#include "cuda/pinned_memory.hpp"
#include "cuda/relay_job.hpp"
#include "cuda/windows.hpp"

namespace tensorwire::cuda {

/// Owns it all.
class RelayRail {
 public:
  /// On the current GPU. @throws Error
  RelayRail(bool windows_on_gpu, std::size_t window_bytes);
  ~RelayRail();
  RelayRail(const RelayRail&) = delete;
  RelayRail& operator=(const RelayRail&) = delete;

  /// Gives a job its addresses.
  void put_into(RelayJob& job) const noexcept;

  std::size_t window_bytes;
  Windows windows_in, windows_out;
  PinnedMemory board_memory;
  RelayBoard& board;
  RelayState* state = nullptr;
  std::uint64_t finished = 0;  ///< rounds; of the serving thread
};

}  // namespace tensorwire::cuda
