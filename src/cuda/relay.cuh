// What the kernels of a relay have in common: pieces of tensors, windows, and a kernel's talk with the host.
//
// Memory order. The threads of a block store to the window, come to a barrier, and one of them fences at system scope
// and counts the block in. The last block to be counted stores the doorbell, its sequence with release; the host
// acquires that. The other way: the host stores results, then the release word; one thread of the first block acquires
// it at system scope and passes it on to the other blocks through a word in device memory, which one thread of each
// acquires before a barrier.
#pragma once

#include <cuda_runtime.h>

#include "cuda/arithmetic.cuh"
#include "cuda/dispatch.cuh"
#include "cuda/failure.hpp"
#include "cuda/protocol.cuh"
#include "cuda/relay_job.hpp"

namespace tensorwire::cuda {

constexpr std::uint64_t kFailed = ~std::uint64_t{0};
constexpr std::uint64_t kUnchanged = ~std::uint64_t{0};

/// A round's piece of each part: [offset, offset + bytes) of it. In windows the pieces of all rounds lie alike, as far
/// apart as the longest one is long: those who are still taking one round out do not meet those who fill the next but
/// one.
struct RelayPiece {
  std::uint64_t offset;
  std::uint64_t bytes;
};

__device__ inline RelayPiece piece_of(const RelayJob& job, std::uint64_t part_bytes, std::uint64_t round) {
  const std::uint64_t offset = round * job.piece_bytes;
  return {offset, min(job.piece_bytes, part_bytes - min(part_bytes, offset))};
}

__device__ inline std::uint64_t first_of_grid() { return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline std::uint64_t threads_of_grid() { return std::uint64_t{gridDim.x} * blockDim.x; }

// What is in a window was not written by this kernel, and the same addresses had something else before: windows are
// read by strong loads, past the first-level cache.
struct FromTensor {
  static __device__ Unit unit(const std::byte* from) { return *reinterpret_cast<const Unit*>(from); }
  template <class Element>
  static __device__ Element element(const std::byte* from) {
    return *reinterpret_cast<const Element*>(from);
  }
};
struct FromWindow {
  static __device__ Unit unit(const std::byte* from) {
    Unit unit;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(unit.words[0]), "=r"(unit.words[1]), "=r"(unit.words[2]), "=r"(unit.words[3])
                 : "l"(from)
                 : "memory");
    return unit;
  }
  template <class Element>
  static __device__ Element element(const std::byte* from) {
    return *reinterpret_cast<const volatile Element*>(from);
  }
};

/// All threads of the grid copy `bytes` bytes, 16 at a time where both lie so, else by elements of two bytes or one.
template <class From>
__device__ void copy_by_grid(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const std::uint64_t first = first_of_grid();
  const std::uint64_t threads = threads_of_grid();
  const auto both = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  std::uint64_t whole = 0;
  if (both % kUnitBytes == 0) {
    whole = bytes / kUnitBytes * kUnitBytes;
    for (std::uint64_t at = first * kUnitBytes; at < whole; at += threads * kUnitBytes) {
      *reinterpret_cast<Unit*>(to + at) = From::unit(from + at);
    }
  }
  if ((both | bytes) % 2 == 0) {
    for (std::uint64_t at = whole + first * 2; at < bytes; at += threads * 2) {
      *reinterpret_cast<std::uint16_t*>(to + at) = From::template element<std::uint16_t>(from + at);
    }
    return;
  }
  for (std::uint64_t at = whole + first; at < bytes; at += threads) {
    to[at] = std::byte{From::template element<unsigned char>(from + at)};
  }
}

/// A kernel's talk with the host, the same for all blocks.
class Relayed {
 public:
  /// Rounds count from the next one to be rung for, or from `first`.
  __device__ explicit Relayed(const RelayJob& job) : Relayed(job, load_word(&job.state->rung)) {}
  __device__ Relayed(const RelayJob& job, std::uint64_t first) : job_(job), first_(first) {}

  /// Whether there is nothing to begin any more. By all threads. The host's word is not asked here: across PCIe that
  /// takes a microsecond, and whoever waits for a release hears it.
  [[nodiscard]] __device__ bool is_over() const {
    const bool over = threadIdx.x == 0 && load_word(&job_.state->error) != 0;
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
  __device__ void ring(std::uint64_t round, std::uint64_t what, std::uint64_t count) {
    __syncthreads();
    if (threadIdx.x != 0) return;
    const std::uint64_t number = first_ + round;
    if (gridDim.x > 1) {
      std::uint32_t& filled = job_.state->filled[number % kRelayWindows];
      __threadfence_system();
      if (atomicAdd(&filled, 1U) + 1 != gridDim.x) return;
      filled = 0;
    }
    Doorbell& bell = job_.board->doorbells[number % kDoorbells];
    store_word(&bell.count, count);
    store_word(&bell.bytes, job_.doorbell.bytes);
    store_word(&bell.what, round == 0 ? what : what & ~kBeginsOperation);
    store_word(&bell.gate, job_.gate);
    if (job_.gate != 0) close(job_.board->gates[job_.gate - 1]);
    store_word(&times(round).rung_ns, wall_clock_ns());
    // One fence for all: each waits until what was stored is across PCIe.
    __threadfence_system();
    store_word(&bell.sequence, number + 1);
  }

  /// Until the results of the round are in. By all threads; false: the communicator is over.
  [[nodiscard]] __device__ bool await(std::uint64_t round) {
    __shared__ bool came;
    __syncthreads();
    if (threadIdx.x == 0) came = blockIdx.x == 0 ? await_host(first_ + round + 1) : await_block(first_ + round + 1);
    __syncthreads();
    note(times(round).released_ns);
    return came;
  }

  /// The last block to leave hands on how many rounds were rung for, and taken. By all threads, on every way out.
  __device__ void leave(std::uint64_t rung, std::uint64_t taken) {
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence();
    if (atomicAdd(&job_.state->left, 1U) + 1 != gridDim.x) return;
    job_.state->left = 0;
    if (rung != kUnchanged) job_.state->rung = first_ + rung;
    if (taken != kUnchanged) job_.state->taken = first_ + taken;
  }

 private:
  /// The host says that it failed before it opens all gates for good, so one of the two sees what the other does.
  __device__ void close(Gate& gate) const {
    auto& open = reinterpret_cast<volatile std::uint32_t&>(gate.open);
    open = 0;
    __threadfence_system();
    if (load_word(&job_.board->release.failed) != 0) open = 1;
  }
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

/// Copies a round's pieces out of the tensor, to where the host expects them, and rings. By all threads.
__device__ inline void fill(const RelayJob& job, Relayed& relay, std::uint64_t round) {
  relay.note(relay.times(round).begun_ns);
  const RelayPiece piece = piece_of(job, job.in.bytes, round);
  std::byte* to = job.gathers ? relay.window(job.windows_out, round) + job.rank * job.piece_bytes
                              : relay.window(job.windows_in, round);
  for (std::uint32_t part = 0; part < job.in.parts; ++part) {
    copy_by_grid<FromTensor>(to + part * job.piece_bytes, job.in.data + part * job.in.stride + piece.offset,
                             piece.bytes);
  }
  relay.ring(round, job.doorbell.what, job.doorbell.count);
}

/// The sum of one unit over all ranks, in their order: this rank's own is `mine`, the others' lie `stride` bytes apart.
template <class Type>
__device__ Unit sum_of_unit(const RelayJob& job, collective::Op op, const Unit& mine, const std::byte* window,
                            std::uint64_t stride, std::size_t unit) {
  Sum<Type> sum;
  for (std::uint32_t rank = 0; rank < job.ranks; ++rank) {
    const bool own = rank == job.rank;
    sum.add(op, rank == 0, own ? mine : FromWindow::unit(window + rank * stride + unit * kUnitBytes));
  }
  return sum.result(op, job.divisor);
}

/// `out` becomes the sum of a round's pieces, of which the window has one of each rank. By all threads.
template <class Type>
__device__ void sum_pieces(const RelayJob& job, collective::Op op, std::uint64_t round, const std::byte* window) {
  using Storage = typename Type::Storage;
  const RelayPiece piece = piece_of(job, job.out.bytes, round);
  const std::byte* own = job.in.data + job.own_in * job.in.stride + piece.offset;
  std::byte* to = job.out.data + piece.offset;
  const auto both = reinterpret_cast<std::uintptr_t>(own) | reinterpret_cast<std::uintptr_t>(to);
  const Tensor<Storage> tensor(own, to, piece.bytes / sizeof(Storage), both % kUnitBytes == 0);
  const std::size_t units = (piece.bytes + kUnitBytes - 1) / kUnitBytes;
  for (std::size_t unit = first_of_grid(); unit < units; unit += threads_of_grid()) {
    tensor.store(unit, sum_of_unit<Type>(job, op, tensor.load(unit), window, job.piece_bytes, unit));
  }
}

/// Of a two-shot: the chunks that round `at` brought become this rank's chunk of the sums, for which round `at + 1` is
/// rung. By all threads.
template <class Type>
__device__ void turn_round(const RelayJob& job, Relayed& relay, std::uint64_t at, collective::Op op) {
  const Request like = Request::unpacked(job.doorbell.what);
  const std::uint64_t gather =
      Request{static_cast<std::uint8_t>(collective::Collective::kAllGather), like.dtype, like.op, 0, 0}.packed();
  const std::uint64_t chunk = job.doorbell.count * job.element_bytes;
  const auto* own = reinterpret_cast<const Unit*>(relay.window(job.windows_in, at) + job.rank * chunk);
  auto* sums = reinterpret_cast<Unit*>(relay.window(job.windows_out, at + 1) + job.rank * chunk);
  const std::byte* scattered = relay.window(job.windows_out, at);
  for (std::size_t unit = first_of_grid(); unit < chunk / kUnitBytes; unit += threads_of_grid()) {
    sums[unit] = sum_of_unit<Type>(job, op, own[unit], scattered, chunk, unit);
  }
  relay.note(relay.times(at).taken_ns);
  relay.note(relay.times(at + 1).begun_ns);
  relay.ring(at + 1, gather, job.doorbell.count);
}

using RelaySumKernel = void (*)(RelayJobs, collective::Op);

/// Blocks of one rail stand side by side, rails one above the other.
inline int launch_rails(const void* kernel, void** parameters, Grid grid, std::uint32_t rails, Stream stream) noexcept {
  return cudaLaunchKernel(kernel, dim3(grid.lanes, rails), dim3(grid.threads), parameters, 0, stream);
}

inline int launch_one_of(const RelaySumKernel* kernels, const RelayJobs& jobs, collective::DType dtype,
                         collective::Op op, Grid grid, Stream stream) noexcept {
  RelayJobs parameter = jobs;
  void* parameters[] = {&parameter, &op};
  const RelaySumKernel kernel = kernels[static_cast<std::size_t>(dtype) - 1];
  return launch_rails(reinterpret_cast<const void*>(kernel), parameters, grid, jobs.rails, stream);
}

}  // namespace tensorwire::cuda
