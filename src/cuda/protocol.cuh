// How blocks of different GPUs talk through each other's memory: lines, whose flags travel with the data, and slots
// with a flag beside them. All waits are here, and all of them end: by what they wait for, by an error, or by the
// bound.
//
// Memory order (PTX memory model, scope .sys throughout). A line is two 64-bit words of {data, flag}; each is stored
// and loaded as a whole, so data whose flag has come has come. A slot's data is stored by all threads of a block, then
// comes a barrier, then one thread's release of the flag; the receiving thread acquires it before a barrier of its
// block.
#pragma once

#include <cstdint>

#include "cuda/failure.hpp"
#include "cuda/job.hpp"
#include "cuda/journal.cuh"
#include "cuda/litmus.cuh"

namespace tensorwire::cuda {

struct Words {
  std::uint64_t low;
  std::uint64_t high;
};

__device__ inline Words load_words(const void* from) {
  Words words;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0,%1}, [%2];"
               : "=l"(words.low), "=l"(words.high)
               : "l"(from)
               : "memory");
  return words;
}
__device__ inline void store_words(void* to, Words words) {
#ifdef TENSORWIRE_LITMUS
  // All that is promised is that each word is whole.
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(words.low) : "memory");
  if (clock64() % 64 < 2) __nanosleep(2000);
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(static_cast<std::byte*>(to) + 8), "l"(words.high)
               : "memory");
  return;
#endif
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1,%2};" ::"l"(to), "l"(words.low), "l"(words.high) : "memory");
}
__device__ inline std::uint64_t load_word(const void* from) {
  std::uint64_t word;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}
__device__ inline std::uint64_t acquire_word(const void* from) {
  std::uint64_t word;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}
__device__ inline void store_word(void* to, std::uint64_t word) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
__device__ inline void release_word(void* to, std::uint64_t word) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
/// Returns when all that came before on the stream is complete and visible: before it, a kernel that was launched early
/// may touch no memory.
__device__ inline void after_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// How far this block's lane is, and where the communicator stands, as the kernel finds them.
struct Start {
  std::uint64_t count;
  bool failed;  ///< the communicator is over: return at once
};

__device__ inline Start start_of(const Peers& peers, Counter counter) {
  const std::uint64_t count = load_word(peers.own + peers.layout.counter_at(blockIdx.x, counter));
  const std::uint64_t error = load_word(peers.own + peers.layout.error_at(peers.rank));
  return {count, error != 0};
}

/// Once for each block, by one thread, after all its threads have called start_of().
__device__ inline void keep(const Peers& peers, Counter counter, std::uint64_t count) {
  if (planted(peers, Mistake::kSequenceNotKept) && peers.rank == 0 && count % 64 == 0) return;
  store_word(peers.own + peers.layout.counter_at(blockIdx.x, counter), count);
}

/// Tells this rank's later kernels, its host and all other ranks. The first error stays.
__device__ inline void fail(const Peers& peers, std::uint64_t error) {
  auto* sticky = reinterpret_cast<unsigned long long*>(peers.own + peers.layout.error_at(peers.rank));
  if (atomicCAS(sticky, 0ULL, error) != 0) return;
  store_word(&peers.board->error_ns, wall_clock_ns());
  release_word(&peers.board->error, error);
  for (std::uint32_t peer = 0; peer < peers.layout.ranks; ++peer) {
    if (peer != peers.rank) store_word(peers.scratch[peer] + peers.layout.error_at(peers.rank), error);
  }
}

/// How long a thread has waited, by the GPU's wall clock.
struct Patience {
  std::uint64_t began = 0;  ///< 0: only now begins to count
  std::uint64_t next = 0;   ///< when to look around again
};

/// Whether one that waits for `peer` must give up; then the communicator has failed. Not inlined, so that waiting
/// itself costs nothing; and it seldom looks at memory: thousands of threads may ask.
static __device__ __noinline__ bool must_give_up(const Peers& peers, std::uint32_t sequence, std::uint32_t peer,
                                                 Patience& patience) {
  constexpr std::uint64_t kLookAroundNs = 200'000;
  const std::uint64_t now = wall_clock_ns();
  if (patience.began == 0) patience.began = now;
  if (now < patience.next) return false;
  const bool first = patience.next == 0;
  patience.next = now + kLookAroundNs;
  if (first) return false;

  // One thread of those of the warp that wait asks the host, across PCIe; the others hear it from that one's fail().
  std::uint64_t error = 0;
  const auto leader = static_cast<std::uint32_t>(__ffs(static_cast<int>(__activemask())) - 1);
  if (threadIdx.x % warpSize == leader) error = load_word(&peers.board->abort);
  const std::byte* mine = peers.scratch[peers.rank];
  for (std::uint32_t reporter = 0; reporter < peers.layout.ranks && error == 0; ++reporter) {
    error = load_word((reporter == peers.rank ? peers.own : mine) + peers.layout.error_at(reporter));
  }
  if (error == 0 && now - patience.began < peers.bound_ns) return false;
  if (error == 0) {
    error = Failure{FailureKind::kTimeout, static_cast<std::uint8_t>(peer), static_cast<std::uint8_t>(peers.rank),
                    static_cast<std::uint8_t>(blockIdx.x), sequence}
                .packed();
  }
  fail(peers, error);
  return true;
}

/// One thread's waiting, from its first look at something that is not there yet.
class Wait {
 public:
  /// @param timed whether this thread notes in the journal how long it waited; some ten microseconds it does not see
  __device__ Wait(const Peers& peers, std::uint32_t sequence, bool timed = false)
      : peers_(peers), sequence_(sequence), timed_(timed && blockIdx.x == 0) {}

  /// What was waited for has come. `peer`: who sent what came last.
  __device__ void came(std::uint32_t peer) {
    if (began_ns_ == 0) return;
    came_ns_ = wall_clock_ns();
    note_wait(peer, came_ns_ - began_ns_);
    began_ns_ = 0;
  }
  /// When what was waited for last came, by the GPU's clock; 0: nothing was waited for, or it was not timed.
  [[nodiscard]] __device__ std::uint64_t came_ns() const { return came_ns_; }
  /// After each look that was in vain: true when it is time to give up. Then the communicator has failed.
  __device__ bool over(std::uint32_t peer) {
    if (++looks_ <= kEagerLooks) return false;
    if (timed_ && began_ns_ == 0) began_ns_ = wall_clock_ns();  // seldom: the clock costs a good part of a short wait
    __nanosleep(kPauseNs);
    if (looks_ % kLooks != 0) return false;
    Patience patience = patience_;
    const bool give_up = must_give_up(peers_, sequence_, peer, patience);
    patience_ = patience;
    return give_up;
  }

 private:
  static constexpr std::uint32_t kLooks = 64;
  /// Whoever waits for longer than a small operation lasts leaves the memory to those who bring what he waits for.
  static constexpr std::uint32_t kEagerLooks = 16;
  static constexpr unsigned kPauseNs = 100;

  const Peers& peers_;
  std::uint32_t sequence_;
  bool timed_;
  std::uint32_t looks_ = 0;
  std::uint64_t came_ns_ = 0;
  std::uint64_t began_ns_ = 0;  ///< 0: nothing was missing yet, or it is not timed
  Patience patience_;
};

}  // namespace tensorwire::cuda
