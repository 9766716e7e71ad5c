// All-reduce over lines: each rank writes its tensor into the lines of all others, and sums what has come in its own.
// One hop, no fence, no barrier; twice the bytes, so for small tensors.
#include "cuda/dispatch.cuh"
#include "cuda/lines.cuh"

namespace tensorwire::cuda {

namespace {

/// The lines of this lane and half in the scratch of `receiver`, of what `sender` writes there.
__device__ std::byte* lines_of(const Peers& peers, std::uint32_t receiver, std::uint32_t sender, std::uint32_t half) {
  return peers.scratch[receiver] + peers.layout.lines_at(blockIdx.x, sender, half);
}

/// Gives some lines that this operation does not use its flag, in turn.
__device__ void refresh(const Peers& peers, std::uint64_t operation, std::uint32_t used) {
  const Layout& layout = peers.layout;
  const std::uint32_t flag = static_cast<std::uint32_t>(operation) & layout.flag_mask();
  const std::uint32_t each = layout.refreshed_lines();
  for (std::uint32_t i = threadIdx.x; i < each * layout.ranks; i += blockDim.x) {
    const std::uint32_t sender = i / each;
    const std::uint32_t line = (static_cast<std::uint32_t>(operation / kHalves) * each + i % each) % layout.lines;
    if (sender == peers.rank || line < used) continue;
    store_words(lines_of(peers, peers.rank, sender, operation % kHalves) + std::size_t{line} * kLineBytes,
                line_of(0, 0, flag));
  }
}

/// kMost: the most ranks that this kernel is for; their lines are looked at together.
template <class Type, std::uint32_t kMost>
__global__ void __launch_bounds__(512) all_reduce_lines(const __grid_constant__ AllReduceJob job) {
  const Peers& peers = job.peers;
  const std::uint32_t ranks = kMost == 2 ? 2 : peers.layout.ranks;
  const Tensor<typename Type::Storage> tensor(job.in, job.out, job.count, job.aligned);
  const Share share = share_of_lane(units_of<Type>(job.count), job.lane_units);

  after_predecessor();
  const JournalStart journal = journal_start(peers);
  const Start start = start_of(peers, Counter::kLines);
  if (start.failed) return;
  const std::uint64_t operation = start.count + 1;
  const auto flag = static_cast<std::uint32_t>(operation) & peers.layout.flag_mask();
  const auto half = planted(peers, Mistake::kLinesOneHalf) ? 0 : static_cast<std::uint32_t>(operation % kHalves);

  for (std::size_t unit = threadIdx.x; unit < share.size; unit += blockDim.x) {
    const Unit mine = tensor.load(share.first + unit);
    for (std::uint32_t step = 1; step < ranks; ++step) {
      const std::uint32_t peer = (peers.rank + step) % ranks;
      store_lines(lines_of(peers, peer, peers.rank, half), unit, share.size, mine, flag);
    }
  }
  open_journal(peers, journal);
  __syncthreads();
  if (threadIdx.x == 0) keep(peers, Counter::kLines, operation);
  between_steps(peers, 3, operation);
  if (!planted(peers, Mistake::kLinesNotRenewed)) refresh(peers, operation, static_cast<std::uint32_t>(2 * share.size));

  Wait wait(peers, static_cast<std::uint32_t>(operation), threadIdx.x == 0);
  for (std::size_t unit = threadIdx.x; unit < share.size; unit += blockDim.x) {
    const Unit mine = tensor.load(share.first + unit);
    UnitLines lines[kMost];
    std::uint32_t missing = kMost;
    std::uint32_t last = kMost;  // that was missing
    do {
      missing = kMost;
#pragma unroll
      for (std::uint32_t peer = 0; peer < kMost; ++peer) {
        if (peer >= ranks || peer == peers.rank) continue;
        lines[peer] = load_lines(lines_of(peers, peers.rank, peer, half), unit, share.size);
      }
#pragma unroll
      for (std::uint32_t peer = 0; peer < kMost; ++peer) {
        if (peer >= ranks || peer == peers.rank) continue;
        if (!bear(peers, lines[peer], flag)) missing = peer;
      }
      if (missing == kMost) break;
      last = missing;
    } while (!wait.over(missing));
    if (missing != kMost) return;
    if (last != kMost) wait.came(last);

    Sum<Type> sum;
#pragma unroll
    for (std::uint32_t rank = 0; rank < kMost; ++rank) {
      if (rank < ranks) sum.add(job.op, rank == 0, either(rank == peers.rank, mine, unit_of(lines[rank])));
    }
    tensor.store(share.first + unit, sum.result(job.op, ranks));
  }
  if (threadIdx.x == 0) note_end(wait.came_ns());
}

template <std::uint32_t kMost>
constexpr AllReduceKernel kernel_for(int type) {
  return type == 0   ? &all_reduce_lines<Float32, kMost>
         : type == 1 ? &all_reduce_lines<Float16, kMost>
         : type == 2 ? &all_reduce_lines<Bfloat16, kMost>
                     : &all_reduce_lines<Int32, kMost>;
}

const AllReduceKernels kKernels{
    {kernel_for<2>(0), kernel_for<2>(1), kernel_for<2>(2), kernel_for<2>(3)},
    {kernel_for<kMaxRanks>(0), kernel_for<kMaxRanks>(1), kernel_for<kMaxRanks>(2), kernel_for<kMaxRanks>(3)}};

}  // namespace

int launch_lines(const AllReduceJob& job, collective::DType dtype, Grid grid, Stream stream) noexcept {
  return kKernels.launch(job, dtype, grid, stream);
}

int load_lines_kernels() noexcept { return kKernels.load(); }

}  // namespace tensorwire::cuda
