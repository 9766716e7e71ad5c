// An all-reduce that the host carries, in kernels of its own for each step: what is rung for by one is taken by a later
// one, and between them the stream does something else. Rounds count on in device memory, `rung` for those who ring and
// `taken` for those who take, so a graph that holds them may be replayed. Whatever is rung for is taken in that order.
#include "cuda/relay.cuh"

namespace tensorwire::cuda {

namespace {

__global__ void __launch_bounds__(512) relay_post(const __grid_constant__ RelayJobs jobs) {
  const RelayJob& job = jobs.rail[blockIdx.y];
  Relayed relay(job);
  if (relay.is_over()) return;
  fill(job, relay, 0);
  relay.leave(1, kUnchanged);
}

__device__ inline Relayed next_to_take(const RelayJob& job) { return {job, load_word(&job.state->taken)}; }

template <class Type>
__global__ void __launch_bounds__(512) relay_collect_sum(const __grid_constant__ RelayJobs jobs, collective::Op op) {
  const RelayJob& job = jobs.rail[blockIdx.y];
  Relayed relay = next_to_take(job);
  if (relay.is_over()) return;
  if (relay.await(0)) {
    sum_pieces<Type>(job, op, 0, relay.window(job.windows_out, 0));
    relay.note(relay.times(0).taken_ns);
  }
  relay.leave(kUnchanged, 1);
}

template <class Type>
__global__ void __launch_bounds__(512) relay_turn(const __grid_constant__ RelayJobs jobs, collective::Op op) {
  const RelayJob& job = jobs.rail[blockIdx.y];
  Relayed relay = next_to_take(job);
  if (relay.is_over()) return;
  if (relay.await(0)) turn_round<Type>(job, relay, 0, op);
  relay.leave(2, 1);
}

__global__ void __launch_bounds__(512) relay_collect(const __grid_constant__ RelayJobs jobs) {
  const RelayJob& job = jobs.rail[blockIdx.y];
  Relayed relay = next_to_take(job);
  if (relay.is_over()) return;
  if (relay.await(0)) {
    copy_by_grid<FromWindow>(job.out.data, relay.window(job.windows_out, 0), job.out.bytes);
    relay.note(relay.times(0).taken_ns);
  }
  relay.leave(kUnchanged, 1);
}

const RelaySumKernel kCollectSums[] = {&relay_collect_sum<Float32>, &relay_collect_sum<Float16>,
                                       &relay_collect_sum<Bfloat16>, &relay_collect_sum<Int32>};
const RelaySumKernel kTurns[] = {&relay_turn<Float32>, &relay_turn<Float16>, &relay_turn<Bfloat16>, &relay_turn<Int32>};

int launch_untyped(const void* kernel, const RelayJobs& jobs, Grid grid, Stream stream) noexcept {
  RelayJobs parameter = jobs;
  void* parameters[] = {&parameter};
  return launch_rails(kernel, parameters, grid, jobs.rails, stream);
}

}  // namespace

int launch_relay_post(const RelayJobs& jobs, Grid grid, Stream stream) noexcept {
  return launch_untyped(reinterpret_cast<const void*>(&relay_post), jobs, grid, stream);
}

int launch_relay_collect(const RelayJobs& jobs, Grid grid, Stream stream) noexcept {
  return launch_untyped(reinterpret_cast<const void*>(&relay_collect), jobs, grid, stream);
}

int launch_relay_collect_sum(const RelayJobs& jobs, collective::DType dtype, collective::Op op, Grid grid,
                             Stream stream) noexcept {
  return launch_one_of(kCollectSums, jobs, dtype, op, grid, stream);
}

int launch_relay_turn(const RelayJobs& jobs, collective::DType dtype, collective::Op op, Grid grid,
                      Stream stream) noexcept {
  return launch_one_of(kTurns, jobs, dtype, op, grid, stream);
}

int load_relay_split_kernels() noexcept {
  cudaError_t error = load(reinterpret_cast<const void*>(&relay_post));
  if (error == cudaSuccess) error = load(reinterpret_cast<const void*>(&relay_collect));
  for (const auto& kernels : {kCollectSums, kTurns}) {
    for (int type = 0; type < 4; ++type) {
      if (error == cudaSuccess) error = load(reinterpret_cast<const void*>(kernels[type]));
    }
  }
  return error;
}

}  // namespace tensorwire::cuda
