#include "cuda/relay_rail.hpp"

#include <new>

#include "cuda/driver.cuh"

namespace tensorwire::cuda {

RelayRail::RelayRail(bool windows_on_gpu, std::size_t bytes)
    : window_bytes(bytes),
      windows_in(windows_on_gpu, kRelayWindows * bytes),
      windows_out(windows_on_gpu, kRelayWindows * bytes),
      board_memory(sizeof(RelayBoard)),
      board(*new (board_memory.host()) RelayBoard{}) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, sizeof(RelayState)), "allocate memory of the GPU");
  state = static_cast<RelayState*>(memory);
  check(cudaMemset(state, 0, sizeof(RelayState)), "clear memory of the GPU");
  check(cudaDeviceSynchronize(), "clear memory of the GPU");
}

RelayRail::~RelayRail() { cudaFree(state); }

void RelayRail::put_into(RelayJob& job) const noexcept {
  job.board = reinterpret_cast<RelayBoard*>(board_memory.on_gpu());
  job.state = state;
  job.windows_in = windows_in.on_gpu();
  job.windows_out = windows_out.on_gpu();
  job.window_bytes = window_bytes;
}

}  // namespace tensorwire::cuda
