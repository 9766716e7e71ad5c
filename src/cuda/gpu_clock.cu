// The kernel of gpu_clock.hpp.
#include "cuda/dispatch.cuh"
#include "cuda/kernels.hpp"
#include "cuda/protocol.cuh"

namespace tensorwire::cuda {

namespace {

__global__ void answer_clock(ClockBoard* board, std::uint64_t questions, std::uint64_t bound_ns) {
  const std::uint64_t began = wall_clock_ns();
  for (std::uint64_t question = 1; question <= questions; ++question) {
    while (load_word(&board->asked) < question) {
      if (wall_clock_ns() - began > bound_ns) return;
    }
    store_word(&board->ns, wall_clock_ns());
    release_word(&board->answered, question);
  }
}

}  // namespace

int launch_clock(ClockBoard* board, std::uint64_t questions, std::uint64_t bound_ns, Stream stream) noexcept {
  void* parameters[] = {&board, &questions, &bound_ns};
  Grid grid;
  grid.threads = 1;
  grid.early = false;
  return launch(reinterpret_cast<const void*>(&answer_clock), parameters, grid, stream);
}

int load_clock_kernel() noexcept { return load(reinterpret_cast<const void*>(&answer_clock)); }

}  // namespace tensorwire::cuda
