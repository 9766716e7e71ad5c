// All-reduce over words (words.cuh): one-shot, each rank's tensor to all others. The short kernel is for least latency;
// the long one, for two ranks, keeps the link busy: half of a block's threads only send, and half only sum.
#include "cuda/dispatch.cuh"
#include "cuda/words.cuh"

namespace tensorwire::cuda {

namespace {

/// Unit numbers are the lane's and 32 bits wide: a division of 64 bits would be a good part of a small operation's
/// time.
template <class Type, std::uint32_t kMost>
__global__ void __launch_bounds__(512) all_reduce_words(const __grid_constant__ AllReduceJob job) {
  const Tensor<typename Type::Storage> tensor(job.in, job.out, job.count, job.aligned);
  const Share share = share_of_lane(units_of<Type>(job.count), job.lane_units);
  const auto size = static_cast<std::uint32_t>(share.size);
  const std::uint32_t round_units = job.peers.layout.round_bytes / kUnitBytes;
  const WordLane<Type, kMost> lane(job.peers);
  after_predecessor();
  const JournalStart journal = journal_start(job.peers);
  // What is sent first is loaded together with the lane's state.
  Unit first{};
  if (threadIdx.x < size) first = tensor.load(share.first + threadIdx.x);
  const Start start = start_of(job.peers, Counter::kWords);
  if (start.failed) return;

  const auto mine = [&](std::uint32_t unit) { return unit == threadIdx.x ? first : tensor.load(share.first + unit); };
  const auto send = [&](std::uint64_t number, std::uint32_t begin) {
    const std::uint32_t end = min(round_units, size - begin);
    for (std::uint32_t at = threadIdx.x; at < end; at += blockDim.x) lane.send(number, at, mine(begin + at));
  };
  if (size > 0) send(start.count, 0);
  open_journal(job.peers, journal);
  __syncthreads();
  const std::uint32_t rounds = size <= round_units ? min(size, 1U) : (size - 1) / round_units + 1;
  if (threadIdx.x == 0) keep(job.peers, Counter::kWords, start.count + rounds);

  Wait wait(job.peers, static_cast<std::uint32_t>(start.count), threadIdx.x == 0);
  std::uint64_t number = start.count;
  for (std::uint32_t begin = 0; begin < size; begin += round_units, ++number) {
    const bool more = size - begin > round_units;
    if (more) send(number + 1, begin + round_units);
    const std::uint32_t end = min(round_units, size - begin);
    for (std::uint32_t at = threadIdx.x; at < end; at += blockDim.x) {
      Unit result;
      if (!lane.take(wait, job.op, number, at, mine(begin + at), result)) return;
      tensor.store(share.first + begin + at, result);
    }
    if (more) lane.end_round(number);
  }
  if (threadIdx.x == 0) note_end(wait.came_ns());
}

template <std::uint32_t kMost>
constexpr AllReduceKernel kernel_for(int type) {
  return type == 0   ? &all_reduce_words<Float32, kMost>
         : type == 1 ? &all_reduce_words<Float16, kMost>
         : type == 2 ? &all_reduce_words<Bfloat16, kMost>
                     : nullptr;
}

const AllReduceKernels kKernels{
    {kernel_for<2>(0), kernel_for<2>(1), kernel_for<2>(2), nullptr},
    {kernel_for<kMaxRanks>(0), kernel_for<kMaxRanks>(1), kernel_for<kMaxRanks>(2), nullptr}};

}  // namespace

int launch_words(const AllReduceJob& job, collective::DType dtype, Grid grid, Stream stream) noexcept {
  return kKernels.launch(job, dtype, grid, stream);
}

int load_words_kernels() noexcept { return kKernels.load(); }

}  // namespace tensorwire::cuda
