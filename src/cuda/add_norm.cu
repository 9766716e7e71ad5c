// All-reduce, residual addition and RMSNorm in one kernel, over words (words.cuh). A cluster of blocks has a row at a
// time: each block sends, sums and keeps its part in registers; only the sum of squares goes round the cluster, through
// shared memory. Rounding is that of the separate kernels: the all-reduce's result is rounded to the type, the residual
// before its squares are summed (in fp32, in a fixed order), the normalised value before it is multiplied with the
// weight.
#include "cuda/dispatch.cuh"
#include "cuda/words.cuh"

namespace tensorwire::cuda {

namespace {

constexpr std::uint32_t kThreads = 512;
constexpr std::uint32_t kWarps = kThreads / 32;
/// Units of a row that a thread keeps.
constexpr std::uint32_t kMostHeld = 4;

__device__ Unit load_unit(const std::byte* from, std::size_t unit) {
  return *reinterpret_cast<const Unit*>(from + unit * kUnitBytes);
}
__device__ void store_unit(std::byte* to, std::size_t unit, const Unit& data) {
  *reinterpret_cast<Unit*>(to + unit * kUnitBytes) = data;
}

struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// The sum, or the largest, of all threads' values in the cluster, the same bits for all of them; and whether any of
/// them gave up. Each block puts its value into the shared memory of all blocks, by stores that a barrier there counts:
/// so nobody waits for anything but these values, while a barrier of the cluster would wait until all that a thread has
/// stored to memory is seen by the whole GPU. A block leaves when it has all values of its last row, and so has each
/// that wrote to it; two boxes take turns, since a block that is through with one may meet others that are not. A block
/// that is alone has no cluster: kernels without one may not store that way.
class OfCluster {
 public:
  struct Result {
    float value;
    bool gave_up;
  };

  /// By all threads, before anything else; then meet().
  __device__ void open() {
    if (threadIdx.x == 0) {
      for (int box = 0; box < 2; ++box) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&filled_[box])) : "memory");
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
  }
  /// All blocks of the cluster run, and their boxes are open.
  __device__ void meet() const { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

  /// `turn`: counts calls. Values are not negative.
  template <class Combine>
  __device__ Result all(Combine combine, std::uint32_t turn, std::uint32_t blocks, float value, bool gave_up) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(~0U, value, step));
    const std::uint32_t box = turn % 2;
    if (threadIdx.x % 32 == 0) of_warps_[box][threadIdx.x / 32] = value;
    const bool block_gave_up = __syncthreads_or(gave_up) != 0;
    if (blocks == 1) return {of_block(combine, box), block_gave_up};
    const std::uint32_t filled = shared_address(&filled_[box]);
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(filled), "r"(blocks * 8) : "memory");
    }
    if (threadIdx.x < blocks) {
      put(shared_address(&of_blocks_[box][blockIdx.x % blocks]), filled, threadIdx.x,
          std::uint64_t{block_gave_up} << 32 | __float_as_uint(of_block(combine, box)));
    }
    wait(filled, turn / 2 % 2);
    Result all{0, false};
    for (std::uint32_t block = 0; block < blocks; ++block) {
      const std::uint64_t given = of_blocks_[box][block];
      all.value = combine(all.value, __uint_as_float(static_cast<std::uint32_t>(given)));
      all.gave_up = all.gave_up || given >> 32 != 0;
    }
    return all;
  }

 private:
  template <class Combine>
  [[nodiscard]] __device__ float of_block(Combine combine, std::uint32_t box) const {
    float value = 0;
    for (std::uint32_t warp = 0; warp < blockDim.x / 32; ++warp) value = combine(value, of_warps_[box][warp]);
    return value;
  }
  static __device__ std::uint32_t shared_address(const void* at) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
  }
  /// Into the same place of another block of the cluster, whose barrier counts it.
  static __device__ void put(std::uint32_t at, std::uint32_t filled, std::uint32_t block, std::uint64_t value) {
    asm volatile(
        "{\n\t.reg .b32 at, filled;\n\t"
        "mapa.shared::cluster.u32 at, %0, %2;\n\t"
        "mapa.shared::cluster.u32 filled, %1, %2;\n\t"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [at], %3, [filled];\n\t}" ::"r"(at),
        "r"(filled), "r"(block), "l"(value)
        : "memory");
  }
  static __device__ void wait(std::uint32_t filled, std::uint32_t parity) {
    std::uint32_t done = 0;
    do {
      asm volatile(
          "{\n\t.reg .pred full;\n\t"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 full, [%1], %2;\n\t"
          "selp.u32 %0, 1, 0, full;\n\t}"
          : "=r"(done)
          : "r"(filled), "r"(parity)
          : "memory");
    } while (done == 0);
  }

  std::uint64_t filled_[2];
  std::uint64_t of_blocks_[2][kMostSplit];
  float of_warps_[2][kWarps];
};

__device__ float largest_of(QuantType type) { return type == QuantType::kFloat8 ? 448.0F : 127.0F; }

/// Two values as two bytes, the first in the lower one.
__device__ std::uint32_t quantised(QuantType type, float first, float second) {
  if (type == QuantType::kFloat8) {
    std::uint16_t both;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(second), "f"(first));
    return both;
  }
  const auto byte = [](float value) {
    return static_cast<std::uint32_t>(__float2int_rn(fminf(fmaxf(value, -127.0F), 127.0F))) & 0xff;
  };
  return byte(first) | byte(second) << 8;
}

/// A unit's elements, divided by the scale, at unit `at` of the quantised tensor.
template <class Type>
__device__ void store_quantised(const AddNormJob& job, std::size_t at, const Unit& unit, float scale) {
  using Elements = ElementsOf<Type>;
  std::uint32_t words[2] = {};
#pragma unroll
  for (int e = 0; e < Elements::kCount; e += 2) {
    words[e / 4] |= quantised(job.quant_type, Elements::get(unit, e) / scale, Elements::get(unit, e + 1) / scale)
                    << (e % 4 * 8);
  }
  if constexpr (Elements::kCount == 8) {
    reinterpret_cast<uint2*>(job.quant_out)[at] = make_uint2(words[0], words[1]);
  } else {
    reinterpret_cast<std::uint32_t*>(job.quant_out)[at] = words[0];
  }
}

template <class Type, std::uint32_t kMost, bool kQuantises, std::uint32_t kHeld>
__global__ void __launch_bounds__(kThreads) add_norm(const __grid_constant__ AddNormJob job) {
  using Elements = ElementsOf<Type>;
  __shared__ OfCluster of_row;
  const WordLane<Type, kMost> lane(job.peers);
  const auto shift = static_cast<std::uint32_t>(__ffs(static_cast<int>(job.split)) - 1);  // a division takes longer
  const std::uint32_t units = job.row_units >> shift;
  const std::uint32_t part = (blockIdx.x & (job.split - 1)) * units;
  const std::uint32_t clusters = gridDim.x >> shift;
  const std::uint32_t first_row = blockIdx.x >> shift;
  const float hidden = static_cast<float>(job.row_units * Elements::kCount);
  if (job.split > 1) of_row.open();
  after_predecessor();
  // What is sent first is loaded together with the lane's state.
  const Start start = start_of(job.peers, Counter::kWords);
  const std::uint32_t rounds = job.rounds + (first_row < job.longer ? 1 : 0);
  Unit first{};
  if (threadIdx.x < units) {
    first = load_unit(job.in, std::size_t{first_row} * job.row_units + part + threadIdx.x);
  }
  const JournalStart journal = journal_start(job.peers);

  const auto send = [&](std::uint32_t round) {
    const std::size_t base = std::size_t{first_row + round * clusters} * job.row_units + part;
    for (std::uint32_t at = threadIdx.x; at < units; at += blockDim.x) {
      const bool loaded = round == 0 && at == threadIdx.x;
      lane.send(start.count + round, at, loaded ? first : load_unit(job.in, base + at));
    }
  };
  bool gave_up = start.failed;
  if (rounds > 0 && !gave_up) send(0);
  open_journal(job.peers, journal, gave_up);
  __syncthreads();
  if (threadIdx.x == 0) keep(job.peers, Counter::kWords, start.count + rounds);
  if (job.split > 1) of_row.meet();
  std::uint32_t turn = 0;
  Wait wait(job.peers, static_cast<std::uint32_t>(start.count), threadIdx.x == 0);
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
      const Unit mine = round == 0 && i == 0 ? first : load_unit(job.in, base + at);
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
    const OfCluster::Result squares = of_row.all(Plus{}, turn++, job.split, square, gave_up);
    if (squares.gave_up) return;
    if (round + 1 == rounds && threadIdx.x == 0) note_end();  // what is left is as long in every operation
    const float scale = rsqrtf(squares.value / hidden + job.epsilon);
    float largest = 0;
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
      if (!kQuantises || job.norm_out != nullptr) store_unit(job.norm_out, base + at, result);
      if constexpr (!kQuantises) continue;
      held[i] = result;
#pragma unroll
      for (int e = 0; e < Elements::kCount; ++e) largest = fmaxf(largest, fabsf(Elements::get(result, e)));
    }
    if constexpr (kQuantises) {
      float quant_scale = 0;
      if (job.row_scales == nullptr) {
        quant_scale = *job.quant_scale;
      } else {
        const float of_all = of_row.all(Larger{}, turn++, job.split, largest, false).value;
        quant_scale = of_all == 0 ? 1.0F : of_all / largest_of(job.quant_type);
        if (part == 0 && threadIdx.x == 0) job.row_scales[first_row + round * clusters] = quant_scale;
      }
#pragma unroll
      for (std::uint32_t i = 0; i < kHeld; ++i) {
        const std::uint32_t at = threadIdx.x + i * blockDim.x;
        if (at < units) store_quantised<Type>(job, base + at, held[i], quant_scale);
      }
    }
    if (round + 1 < rounds) lane.end_round(start.count + round);
  }
}

using Kernel = void (*)(AddNormJob);

template <class Type, std::uint32_t kHeld>
Kernel kernel_of(std::uint32_t ranks, bool quantises) {
  if (quantises) return ranks == 2 ? &add_norm<Type, 2, true, kHeld> : &add_norm<Type, kMaxRanks, true, kHeld>;
  return ranks == 2 ? &add_norm<Type, 2, false, kHeld> : &add_norm<Type, kMaxRanks, false, kHeld>;
}
template <std::uint32_t kHeld>
Kernel kernel_of(collective::DType dtype, std::uint32_t ranks, bool quantises) {
  switch (dtype) {
    case collective::DType::kFloat32:
      return kernel_of<Float32, kHeld>(ranks, quantises);
    case collective::DType::kFloat16:
      return kernel_of<Float16, kHeld>(ranks, quantises);
    case collective::DType::kBfloat16:
      return kernel_of<Bfloat16, kHeld>(ranks, quantises);
    case collective::DType::kInt32:
      break;
  }
  return nullptr;
}
/// `short_rows`: no thread has more than one unit of a row.
Kernel kernel_for(collective::DType dtype, std::uint32_t ranks, bool quantises, bool short_rows) {
  return short_rows ? kernel_of<1>(dtype, ranks, quantises) : kernel_of<kMostHeld>(dtype, ranks, quantises);
}

}  // namespace

int launch_add_norm(const AddNormJob& job, collective::DType dtype, Grid grid, Stream stream) noexcept {
  AddNormJob parameter = job;
  const std::uint32_t clusters = grid.lanes / job.split;
  parameter.rounds = job.rows / clusters;
  parameter.longer = job.rows % clusters;
  void* parameters[] = {&parameter};
  const bool short_rows = job.row_units / job.split <= grid.threads;
  const Kernel kernel = kernel_for(dtype, job.peers.layout.ranks, job.quant_out != nullptr, short_rows);
  return launch(reinterpret_cast<const void*>(kernel), parameters, grid, stream, job.split);
}

int load_add_norm_kernels() noexcept {
  for (const auto dtype : {collective::DType::kFloat32, collective::DType::kFloat16, collective::DType::kBfloat16}) {
    for (const std::uint32_t ranks : {2U, kMaxRanks}) {
      for (const bool quantises : {false, true}) {
        cudaError_t error = load(reinterpret_cast<const void*>(kernel_for(dtype, ranks, quantises, true)));
        if (error == cudaSuccess) {
          error = load(reinterpret_cast<const void*>(kernel_for(dtype, ranks, quantises, false)));
        }
        if (error != cudaSuccess) return error;
      }
    }
  }
  return cudaSuccess;
}

}  // namespace tensorwire::cuda
