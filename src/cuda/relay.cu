// One kernel does one collective that the host carries: copy a piece of the tensor into a window of pinned memory, ring
// the doorbell, wait for the release word, take the result out of a window. The next piece is copied and rung for
// before the results of this one are waited for.
//
// Memory order. The threads of a block store to the window, come to a barrier, and one of them fences at system scope
// and counts the block in. The last block to be counted stores the doorbell, its sequence with release; the host
// acquires that. The other way: the host stores results, then the release word; one thread of the first block acquires
// it at system scope and passes it on to the other blocks through a word in device memory. Windows are read past the
// first-level cache.
#include <cuda_runtime.h>

#include "cuda/arithmetic.cuh"
#include "cuda/dispatch.cuh"
#include "cuda/failure.hpp"
#include "cuda/protocol.cuh"
#include "cuda/relay_job.hpp"

namespace tensorwire::cuda {

namespace {

constexpr std::uint64_t kFailed = ~std::uint64_t{0};

/// A round's piece of each part: [offset, offset + bytes) of it.
struct RelayPiece {
  std::uint64_t offset;
  std::uint64_t bytes;
};

__device__ RelayPiece piece_of(const RelayJob& job, std::uint64_t part_bytes, std::uint64_t round) {
  const std::uint64_t offset = round * job.piece_bytes;
  return {offset, min(job.piece_bytes, part_bytes - min(part_bytes, offset))};
}

/// All threads of the grid copy `bytes` bytes, 16 at a time where both lie so, else by elements of two bytes or one.
/// @param load how 16 bytes are read
template <typename Load>
__device__ void copy_by_grid(std::byte* to, const std::byte* from, std::uint64_t bytes, const Load& load) {
  const std::uint64_t first = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  const auto both = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  std::uint64_t whole = 0;
  if (both % kUnitBytes == 0) {
    whole = bytes / kUnitBytes * kUnitBytes;
    for (std::uint64_t at = first * kUnitBytes; at < whole; at += threads * kUnitBytes) {
      *reinterpret_cast<Unit*>(to + at) = load(from + at);
    }
  }
  if ((both | bytes) % 2 == 0) {
    for (std::uint64_t at = whole + first * 2; at < bytes; at += threads * 2) {
      *reinterpret_cast<std::uint16_t*>(to + at) = *reinterpret_cast<const volatile std::uint16_t*>(from + at);
    }
    return;
  }
  for (std::uint64_t at = whole + first; at < bytes; at += threads) {
    to[at] = std::byte{*reinterpret_cast<const volatile unsigned char*>(from + at)};
  }
}

__device__ Unit load_own(const std::byte* from) { return *reinterpret_cast<const Unit*>(from); }
__device__ Unit load_window(const std::byte* from) {
  Unit unit;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(unit.words[0]), "=r"(unit.words[1]), "=r"(unit.words[2]), "=r"(unit.words[3])
               : "l"(from)
               : "memory");
  return unit;
}

/// A unit of elements that lie on no boundary of 16 bytes; zeros behind the end.
template <class Storage>
__device__ Unit load_elements(const std::byte* from, std::size_t unit, std::size_t count) {
  constexpr std::size_t kElements = kUnitBytes / sizeof(Storage);
  Storage elements[kElements] = {};
  for (std::size_t i = 0; i < kElements && unit * kElements + i < count; ++i) {
    elements[i] = reinterpret_cast<const volatile Storage*>(from)[unit * kElements + i];
  }
  Unit whole;
  memcpy(&whole, elements, sizeof whole);
  return whole;
}

/// A kernel's talk with the host, the same for all blocks.
class Relayed {
 public:
  __device__ explicit Relayed(const RelayJob& job) : job_(job), first_(load_word(&job.state->rung)) {}

  /// Whether there is nothing to begin any more. By all threads.
  [[nodiscard]] __device__ bool is_over() const {
    const bool over = load_word(&job_.state->error) != 0 || load_word(&job_.board->release.failed) != 0;
    if (__syncthreads_or(over) == 0) return false;
    if (blockIdx.x == 0 && threadIdx.x == 0) release_word(&job_.state->go, kFailed);  // blocks that did not see it
    return true;
  }
  [[nodiscard]] __device__ RelayTimes& times(std::uint64_t round) const {
    return job_.board->times[(first_ + round) % kDoorbells];
  }
  /// By one thread of the grid, for the host to read.
  __device__ void note(std::uint64_t& moment) const {
    if (blockIdx.x == 0 && threadIdx.x == 0) store_word(&moment, wall_clock_ns());
  }
  [[nodiscard]] __device__ std::byte* window(std::byte* windows, std::uint64_t round) const {
    return windows + (first_ + round) % kRelayWindows * job_.window_bytes;
  }

  /// All blocks have filled their share of the window: then the doorbell rings. By all threads.
  __device__ void ring(std::uint64_t round, std::uint64_t count) {
    __syncthreads();
    if (threadIdx.x != 0) return;
    const std::uint64_t number = first_ + round;
    std::uint32_t& filled = job_.state->filled[number % kRelayWindows];
    __threadfence_system();
    if (atomicAdd(&filled, 1U) + 1 != gridDim.x) return;
    filled = 0;
    __threadfence_system();
    Doorbell& bell = job_.board->doorbells[number % kDoorbells];
    const Doorbell& like = job_.doorbell;
    store_word(&bell.count, count);
    store_word(&bell.bytes, like.bytes);
    store_word(&bell.what, round == 0 ? like.what : like.what & ~kBeginsOperation);
    store_word(&times(round).rung_ns, wall_clock_ns());
    release_word(&bell.sequence, number + 1);
  }

  /// Until the results of the round are in. By all threads; false: the communicator is over.
  [[nodiscard]] __device__ bool await(std::uint64_t round) {
    __shared__ bool came;
    __syncthreads();
    if (threadIdx.x == 0) came = blockIdx.x == 0 ? await_host(first_ + round + 1) : await_block(first_ + round + 1);
    __syncthreads();
    return came;
  }

  /// The last block to leave hands the sequence on. By all threads, on every way out.
  __device__ void leave(std::uint64_t rounds) {
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence();
    if (atomicAdd(&job_.state->left, 1U) + 1 != gridDim.x) return;
    job_.state->left = 0;
    job_.state->rung = first_ + rounds;
  }

 private:
  [[nodiscard]] __device__ bool await_host(std::uint64_t number) {
    const std::uint64_t began = wall_clock_ns();
    std::uint64_t error = 0;
    while (true) {
      const Words words = load_words(&job_.board->release);
      error = words.high;
      if (error != 0 || words.low >= number) break;
      if (wall_clock_ns() - began > job_.bound_ns) {
        const auto rank = static_cast<std::uint8_t>(job_.rank);
        error = Failure{FailureKind::kTimeout, rank, rank, 0, static_cast<std::uint32_t>(number)}.packed();
        break;
      }
    }
    __threadfence_system();
    if (error != 0) {
      store_word(&job_.state->error, error);
      release_word(&job_.board->error, error);
    }
    release_word(&job_.state->go, error != 0 ? kFailed : number);
    return error == 0;
  }
  /// The first block always ends: by the host or by its bound.
  [[nodiscard]] __device__ bool await_block(std::uint64_t number) const {
    std::uint64_t go = 0;
    while ((go = acquire_word(&job_.state->go)) < number) __nanosleep(40);
    return go != kFailed;
  }

  const RelayJob& job_;
  std::uint64_t first_;
};

/// @param take of a round: moves its results out of the window
template <typename Take>
__device__ void relay_rounds(const RelayJob& job, const Take& take) {
  Relayed relay(job);
  if (relay.is_over()) return;
  const auto fill = [&](std::uint64_t round) {
    relay.note(relay.times(round).begun_ns);
    const RelayPiece piece = piece_of(job, job.in.part_bytes, round);
    std::byte* to = job.gathers ? relay.window(job.windows_out, round) + job.rank * piece.bytes
                                : relay.window(job.windows_in, round);
    for (std::uint32_t part = 0; part < job.in.parts; ++part) {
      copy_by_grid(to + part * piece.bytes, job.in.data + part * job.in.part_bytes + piece.offset, piece.bytes,
                   load_own);
    }
    const std::uint64_t bytes = job.in.parts != 0 ? piece.bytes : piece_of(job, job.out.part_bytes, round).bytes;
    relay.ring(round, bytes / job.element_bytes);
  };
  std::uint64_t round = 0;
  fill(0);
  for (; round < job.rounds; ++round) {
    if (round + 1 < job.rounds) fill(round + 1);
    if (!relay.await(round)) break;
    relay.note(relay.times(round).released_ns);
    take(round, relay.window(job.windows_out, round));
    relay.note(relay.times(round).taken_ns);
  }
  relay.leave(job.rounds);
}

__global__ void __launch_bounds__(512) relay(const __grid_constant__ RelayJob job) {
  relay_rounds(job, [&](std::uint64_t round, const std::byte* window) {
    const RelayPiece piece = piece_of(job, job.out.part_bytes, round);
    for (std::uint32_t part = 0; part < job.out.parts; ++part) {
      std::byte* to = job.out.data + part * job.out.part_bytes + piece.offset;
      if (!job.gathers || part != job.rank) {
        copy_by_grid(to, window + part * piece.bytes, piece.bytes, load_window);
      } else if (const std::byte* own = job.in.data + piece.offset; own != to) {
        copy_by_grid(to, own, piece.bytes, load_own);
      }
    }
  });
}

/// Of `out` there is one part, and in the window one piece for each rank; this rank's own is taken from its tensor.
template <class Type>
__global__ void __launch_bounds__(512) relay_sum(const __grid_constant__ RelayJob job, collective::Op op) {
  using Storage = typename Type::Storage;
  relay_rounds(job, [&](std::uint64_t round, const std::byte* window) {
    const RelayPiece piece = piece_of(job, job.out.part_bytes, round);
    const std::size_t count = piece.bytes / sizeof(Storage);
    const std::byte* own = job.in.data + piece.offset;
    std::byte* to = job.out.data + piece.offset;
    const bool aligned =
        ((reinterpret_cast<std::uintptr_t>(own) | reinterpret_cast<std::uintptr_t>(to)) % kUnitBytes) == 0;
    const Tensor<Storage> mine(own, to, count, aligned);
    const std::size_t threads = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t unit = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; unit < units_of<Type>(count);
         unit += threads) {
      Sum<Type> sum;
      for (std::uint32_t rank = 0; rank < job.ranks; ++rank) {
        const std::byte* theirs = window + rank * piece.bytes;
        Unit data;
        if (rank == job.rank) {
          data = mine.load(unit);
        } else if (piece.bytes % kUnitBytes == 0) {
          data = load_window(theirs + unit * kUnitBytes);
        } else {
          data = load_elements<Storage>(theirs, unit, count);
        }
        sum.add(op, rank == 0, data);
      }
      mine.store(unit, sum.result(op, job.ranks));
    }
  });
}

using SumKernel = void (*)(RelayJob, collective::Op);
const SumKernel kSums[] = {&relay_sum<Float32>, &relay_sum<Float16>, &relay_sum<Bfloat16>, &relay_sum<Int32>};

}  // namespace

int launch_relay(const RelayJob& job, Grid grid, Stream stream) noexcept {
  RelayJob parameter = job;
  void* parameters[] = {&parameter};
  return launch(reinterpret_cast<const void*>(&relay), parameters, grid, stream);
}

int launch_relay_sum(const RelayJob& job, collective::DType dtype, collective::Op op, Grid grid,
                     Stream stream) noexcept {
  RelayJob parameter = job;
  void* parameters[] = {&parameter, &op};
  return launch(reinterpret_cast<const void*>(kSums[static_cast<std::size_t>(dtype) - 1]), parameters, grid, stream);
}

int load_relay_kernels() noexcept {
  cudaError_t error = load(reinterpret_cast<const void*>(&relay));
  for (const SumKernel kernel : kSums) {
    if (error == cudaSuccess) error = load(reinterpret_cast<const void*>(kernel));
  }
  return error;
}

}  // namespace tensorwire::cuda
