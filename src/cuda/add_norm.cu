// All-reduce, residual addition and RMSNorm in one kernel, over words (words.cuh). A cluster of blocks has a row at a
// time: each block sends, sums and keeps its part in registers; only the sum of squares goes round the cluster, through
// shared memory. Rounding is that of the separate kernels: the all-reduce's result is rounded to the type, the residual
// before its squares are summed (in fp32, in a fixed order), the normalised value before it is multiplied with the
// weight.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "cuda/kernels.hpp"
#include "cuda/words.cuh"

namespace tensorwire::cuda {

namespace {

constexpr std::uint32_t kThreads = 512;
constexpr std::uint32_t kWarps = kThreads / 32;
/// Units of a row that a thread keeps.
constexpr std::uint32_t kHeld = 4;

__device__ Unit load_unit(const std::byte* from, std::size_t unit) {
  return *reinterpret_cast<const Unit*>(from + unit * kUnitBytes);
}
__device__ void store_unit(std::byte* to, std::size_t unit, const Unit& data) {
  *reinterpret_cast<Unit*>(to + unit * kUnitBytes) = data;
}

/// The sum of all threads' values in the cluster, the same bits for all of them; and whether any of them gave up, since
/// blocks may only leave together: shared memory of one that left must not be written.
class ClusterSum {
 public:
  struct Result {
    float sum;
    bool gave_up;
  };

  __device__ Result of(float value, bool gave_up) {
    const auto cluster = cooperative_groups::this_cluster();
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0U, value, step);
    if (threadIdx.x % 32 == 0) of_warps_[threadIdx.x / 32] = value;
    const bool block_gave_up = __syncthreads_or(gave_up) != 0;
    if (threadIdx.x < cluster.num_blocks()) {
      Result mine{0, block_gave_up};
      for (std::uint32_t warp = 0; warp < blockDim.x / 32; ++warp) mine.sum += of_warps_[warp];
      *cluster.map_shared_rank(&of_blocks_[cluster.block_rank()], threadIdx.x) = mine;
    }
    cluster.sync();
    Result all{0, false};
    for (std::uint32_t block = 0; block < cluster.num_blocks(); ++block) {
      all.sum += of_blocks_[block].sum;
      all.gave_up = all.gave_up || of_blocks_[block].gave_up;
    }
    cluster.sync();  // before anyone writes here again, or leaves
    return all;
  }

 private:
  float of_warps_[kWarps];
  Result of_blocks_[kMostSplit];
};

template <class Type, std::uint32_t kMost>
__global__ void __launch_bounds__(kThreads) add_norm(const __grid_constant__ AddNormJob job) {
  using Elements = ElementsOf<Type>;
  __shared__ ClusterSum squares;
  const WordLane<Type, kMost> lane(job.peers);
  const std::uint32_t units = job.row_units / job.split;
  const std::uint32_t part = blockIdx.x % job.split * units;
  const std::uint32_t clusters = gridDim.x / job.split;
  const std::uint32_t first_row = blockIdx.x / job.split;
  const float hidden = static_cast<float>(job.row_units * Elements::kCount);
  after_predecessor();
  const Start start = start_of(job.peers, Counter::kWords);
  __syncthreads();
  const std::uint32_t rounds = first_row < job.rows ? (job.rows - 1 - first_row) / clusters + 1 : 0;
  if (threadIdx.x == 0) keep(job.peers, Counter::kWords, start.count + rounds);

  const auto send = [&](std::uint32_t round) {
    const std::size_t base = std::size_t{first_row + round * clusters} * job.row_units + part;
    for (std::uint32_t at = threadIdx.x; at < units; at += blockDim.x) {
      lane.send(start.count + round, at, load_unit(job.in, base + at));
    }
  };
  bool gave_up = start.failed;
  if (rounds > 0 && !gave_up) send(0);
  Wait wait(job.peers, static_cast<std::uint32_t>(start.count));
  for (std::uint32_t round = 0; round < rounds; ++round) {
    if (round + 1 < rounds && !gave_up) send(round + 1);
    const std::size_t base = std::size_t{first_row + round * clusters} * job.row_units + part;
    Unit held[kHeld];
    Unit weight[kHeld];
    float square = 0;
#pragma unroll
    for (std::uint32_t i = 0; i < kHeld; ++i) {
      const std::uint32_t at = threadIdx.x + i * blockDim.x;
      if (at >= units || gave_up) continue;
      const Unit mine = load_unit(job.in, base + at);
      const Unit residual = load_unit(job.residual_in, base + at);
      weight[i] = load_unit(job.weight, part + at);
      Unit sum;
      gave_up = !lane.take(wait, collective::Op::kSum, start.count + round, at, mine, sum);
      held[i] = Unit{};
#pragma unroll
      for (int e = 0; e < Elements::kCount; ++e) {
        Elements::put(held[i], e, Elements::get(sum, e) + Elements::get(residual, e));
        const float value = Elements::get(held[i], e);
        square += value * value;
      }
      store_unit(job.residual_out, base + at, held[i]);
    }
    const ClusterSum::Result all = squares.of(square, gave_up);
    if (all.gave_up) return;
    const float scale = rsqrtf(all.sum / hidden + job.epsilon);
#pragma unroll
    for (std::uint32_t i = 0; i < kHeld; ++i) {
      const std::uint32_t at = threadIdx.x + i * blockDim.x;
      if (at >= units) continue;
      Unit result{};
#pragma unroll
      for (int e = 0; e < Elements::kCount; ++e) {
        const float scaled = Elements::get(held[i], e) * scale;
        const float by = Elements::get(weight[i], e);
        Elements::put(result, e, job.one_plus ? scaled * (1.0F + by) : Type::widen(Type::narrow(scaled)) * by);
      }
      store_unit(job.norm_out, base + at, result);
    }
    if (round + 1 < rounds) lane.end_round(start.count + round);
  }
}

using Kernel = void (*)(AddNormJob);

Kernel kernel_for(collective::DType dtype, std::uint32_t ranks) {
  switch (dtype) {
    case collective::DType::kFloat32:
      return ranks == 2 ? &add_norm<Float32, 2> : &add_norm<Float32, kMaxRanks>;
    case collective::DType::kFloat16:
      return ranks == 2 ? &add_norm<Float16, 2> : &add_norm<Float16, kMaxRanks>;
    case collective::DType::kBfloat16:
      return ranks == 2 ? &add_norm<Bfloat16, 2> : &add_norm<Bfloat16, kMaxRanks>;
    case collective::DType::kInt32:
      break;
  }
  return nullptr;
}

}  // namespace

int launch_add_norm(const AddNormJob& job, collective::DType dtype, Grid grid, Stream stream) noexcept {
  AddNormJob parameter = job;
  void* parameters[] = {&parameter};
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = job.split;
  attributes[0].val.clusterDim.y = 1;
  attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid.lanes);
  config.blockDim = dim3(grid.threads);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = grid.early ? 2 : 1;
  return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel_for(dtype, job.peers.layout.ranks)),
                             parameters);
}

int load_add_norm_kernels() noexcept {
  for (const auto dtype : {collective::DType::kFloat32, collective::DType::kFloat16, collective::DType::kBfloat16}) {
    for (const std::uint32_t ranks : {2U, kMaxRanks}) {
      cudaFuncAttributes attributes;
      const auto* kernel = reinterpret_cast<const void*>(kernel_for(dtype, ranks));
      const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

}  // namespace tensorwire::cuda
