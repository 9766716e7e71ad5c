// One kernel does one collective that the host carries: copy a piece of the tensor into a window, ring the doorbell,
// wait for the release word, take the result out of a window. The next piece is copied and rung for before the results
// of this one are waited for.
#include "cuda/relay.cuh"

namespace tensorwire::cuda {

namespace {

/// @param take of a round: moves its results out of the window
template <typename Take>
__device__ void relay_rounds(const RelayJob& job, const Take& take) {
  Relayed relay(job);
  if (relay.is_over()) return;
  fill(job, relay, 0);
  for (std::uint64_t round = 0; round < job.rounds; ++round) {
    if (round + 1 < job.rounds) fill(job, relay, round + 1);
    if (!relay.await(round)) break;
    take(round, relay.window(job.windows_out, round));
    relay.note(relay.times(round).taken_ns);
  }
  relay.leave(job.rounds, job.rounds);
}

/// This rank's own part does not come from the host: it never went there.
__global__ void __launch_bounds__(512) relay(const __grid_constant__ RelayJobs jobs) {
  const RelayJob& job = jobs.rail[blockIdx.y];
  relay_rounds(job, [&](std::uint64_t round, const std::byte* window) {
    const RelayPiece piece = piece_of(job, job.out.bytes, round);
    for (std::uint32_t part = 0; part < job.out.parts; ++part) {
      std::byte* to = job.out.data + part * job.out.stride + piece.offset;
      const std::byte* own = job.in.data + job.own_in * job.in.stride + piece.offset;
      if (part != job.own_out) {
        copy_by_grid<FromWindow>(to, window + part * job.piece_bytes, piece.bytes);
      } else if (own != to) {
        copy_by_grid<FromTensor>(to, own, piece.bytes);
      }
    }
  });
}

/// One-shot all-reduce, and reduce-scatter. Of `out` there is one part, and in the window one piece for each rank.
template <class Type>
__global__ void __launch_bounds__(512) relay_sum(const __grid_constant__ RelayJobs jobs, collective::Op op) {
  const RelayJob& job = jobs.rail[blockIdx.y];
  relay_rounds(job, [&](std::uint64_t round, const std::byte* window) { sum_pieces<Type>(job, op, round, window); });
}

/// Two-shot all-reduce: for each piece an all-to-all of its chunks, one for each rank, and an all-gather of their sums.
/// A piece takes two rounds, one after the other; chunks are whole units, so the last ones reach behind the tensor.
template <class Type>
__global__ void __launch_bounds__(512) relay_two_shot(const __grid_constant__ RelayJobs jobs, collective::Op op) {
  const RelayJob& job = jobs.rail[blockIdx.y];
  Relayed relay(job);
  if (relay.is_over()) return;
  for (std::uint64_t at = 0; at < job.rounds; at += 2) {
    const RelayPiece piece = piece_of(job, job.in.bytes, at / 2);
    relay.note(relay.times(at).begun_ns);
    copy_by_grid<FromTensor>(relay.window(job.windows_in, at), job.in.data + piece.offset, piece.bytes);
    relay.ring(at, job.doorbell.what, job.doorbell.count);
    if (!relay.await(at)) break;
    turn_round<Type>(job, relay, at, op);
    if (!relay.await(at + 1)) break;
    copy_by_grid<FromWindow>(job.out.data + piece.offset, relay.window(job.windows_out, at + 1), piece.bytes);
    relay.note(relay.times(at + 1).taken_ns);
  }
  relay.leave(job.rounds, job.rounds);
}

const RelaySumKernel kSums[] = {&relay_sum<Float32>, &relay_sum<Float16>, &relay_sum<Bfloat16>, &relay_sum<Int32>};
const RelaySumKernel kTwoShots[] = {&relay_two_shot<Float32>, &relay_two_shot<Float16>, &relay_two_shot<Bfloat16>,
                                    &relay_two_shot<Int32>};

}  // namespace

int launch_relay(const RelayJobs& jobs, Grid grid, Stream stream) noexcept {
  RelayJobs parameter = jobs;
  void* parameters[] = {&parameter};
  return launch_rails(reinterpret_cast<const void*>(&relay), parameters, grid, jobs.rails, stream);
}

int launch_relay_sum(const RelayJobs& jobs, collective::DType dtype, collective::Op op, Grid grid,
                     Stream stream) noexcept {
  return launch_one_of(kSums, jobs, dtype, op, grid, stream);
}

int launch_relay_two_shot(const RelayJobs& jobs, collective::DType dtype, collective::Op op, Grid grid,
                          Stream stream) noexcept {
  return launch_one_of(kTwoShots, jobs, dtype, op, grid, stream);
}

int load_relay_kernels() noexcept {
  cudaError_t error = load(reinterpret_cast<const void*>(&relay));
  for (const auto& kernels : {kSums, kTwoShots}) {
    for (int type = 0; type < 4; ++type) {
      if (error == cudaSuccess) error = load(reinterpret_cast<const void*>(kernels[type]));
    }
  }
  return error;
}

}  // namespace tensorwire::cuda
