// What a Communicator holds: the mappings of all ranks' scratch, and what its kernels are given. Owns both and the
// board.
#pragma once

#include <memory>
#include <vector>

#include "cuda/communicator.hpp"
#include "cuda/gpu_clock.hpp"
#include "cuda/gpu_memory.hpp"
#include "cuda/job.hpp"
#include "cuda/kernels.hpp"

namespace tensorwire::cuda {

struct CommunicatorState {
  explicit CommunicatorState(const CommunicatorOptions& options);
  ~CommunicatorState();
  CommunicatorState(const CommunicatorState&) = delete;
  CommunicatorState& operator=(const CommunicatorState&) = delete;

  /// A packed Failure; 0: all is well.
  [[nodiscard]] std::uint64_t failure_word() const noexcept {
    const std::uint64_t error = __atomic_load_n(&board->error, __ATOMIC_ACQUIRE);
    return error != 0 ? error : __atomic_load_n(&board->abort, __ATOMIC_ACQUIRE);
  }

  /// What needs no other rank. @throws Error
  void prepare();
  /// Among this process's communicators, for errors that are about two of them.
  void enlist() const;
  void strike() const noexcept;
  /// Copies out of a rank's scratch, beside what runs on the GPU. False: CUDA could not.
  bool read(std::size_t rank, std::size_t at, void* to, std::size_t bytes) const noexcept;

  int device;
  bool early;
  std::vector<std::uint64_t> who;  ///< by rank: alike for the same GPU of the same process, in all communicators
  std::vector<std::shared_ptr<GpuMemory>> scratch;
  GpuMemory own;  ///< Peers::own where the scratch is not on the GPU
  Peers peers;
  Board* board = nullptr;
  Stream side = nullptr;  ///< of this communicator alone, for questions
  std::unique_ptr<GpuClock> clock;
  void* token = nullptr;  ///< one element on the GPU, which barriers reduce
};

[[nodiscard]] inline bool on_boundary(const void* address, std::size_t bytes) noexcept {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

}  // namespace tensorwire::cuda
