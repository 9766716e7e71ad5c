// How kernels keep the journal (journal.hpp). Thread 0 of block 0 opens an operation's entry; whoever waits for a peer,
// or ends, adds to it. Where the journal is off, or in other blocks, there is no entry, and one test of a shared word
// is all. The block's first threads, one for each peer, see to it that ranks ask for the same.
#pragma once

#include "cuda/failure.hpp"
#include "cuda/job.hpp"

namespace tensorwire::cuda {

/// Of all GPUs alike; it ticks every 32 ns on an H200, and reading it takes some 40.
__device__ inline std::uint64_t wall_clock_ns() {
  std::uint64_t ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
}

/// The entry of the operation under way. Set by open_journal(); by other threads read after a barrier of the block.
__device__ inline JournalEntry*& open_entry() {
  __shared__ JournalEntry* entry;
  return entry;
}

/// What a kernel finds when it begins: how far this rank is, and how far the peer whose number is the thread's.
struct JournalStart {
  JournalHead head;
  std::uint64_t told = 0;
};

/// By the first threads of block 0, as soon as they may touch memory; it is needed only later. Loaded where it is
/// needed it would hold up the block for most of a microsecond.
__device__ inline JournalStart journal_start(const Peers& peers) {
  JournalStart start;
  if (blockIdx.x != 0 || threadIdx.x >= peers.layout.ranks || !peers.journal) return start;
  const std::byte* const mine = peers.scratch[peers.rank];
  const std::byte* const head = mine + peers.layout.journal_head_at();
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0,%1}, [%2];"
               : "=l"(start.head.operations), "=l"(start.head.bytes)
               : "l"(head)
               : "memory");
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0,%1}, [%2];"
               : "=l"(start.head.collectives), "=l"(start.head.signature)
               : "l"(head + 16)
               : "memory");
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];"
               : "=l"(start.told)
               : "l"(mine + peers.layout.told_at(threadIdx.x))
               : "memory");
  return start;
}

/// protocol.cuh
__device__ inline void fail(const Peers& peers, std::uint64_t error);

/// Peer `threadIdx.x` is in another operation than this rank. Not inlined: it is hardly ever needed.
static __device__ __noinline__ void end_in_disagreement(const Peers& peers, std::uint32_t collective) {
  fail(peers, Failure{FailureKind::kDisagreement, static_cast<std::uint8_t>(threadIdx.x),
                      static_cast<std::uint8_t>(peers.rank), 0, collective}
                  .packed());
}

/// Thread i tells peer i what begins here, and compares what that peer has told: of this operation if it was sooner,
/// else of the one before, which it has begun at least.
__device__ inline void tell_and_compare(const Peers& peers, const JournalStart& before) {
  const std::uint64_t mine = told_of(before.head.collectives + 1, peers.operation.signature);
  const std::uint64_t last = told_of(before.head.collectives, before.head.signature);
  asm volatile(
      "st.relaxed.sys.global.u64 [%0], %1;" ::"l"(peers.scratch[threadIdx.x] + peers.layout.told_at(peers.rank)),
      "l"(mine)
      : "memory");
  const std::uint64_t told = before.told;
  if (told == 0 || told == mine || told == last) return;
  const auto number = static_cast<std::uint32_t>(told >> 32);
  if (number == static_cast<std::uint32_t>(mine >> 32) || number == static_cast<std::uint32_t>(last >> 32)) {
    end_in_disagreement(peers, number);
  }
}

/// By thread 0 of block 0. @return the operation's entry
__device__ inline JournalEntry* begin_entry(const Peers& peers, const JournalHead& before) {
  std::byte* const mine = peers.scratch[peers.rank];
  const bool counts = peers.operation.signature != 0;
  const std::uint64_t collectives = before.collectives + (counts ? 1 : 0);
  auto* const head = reinterpret_cast<JournalHead*>(mine + peers.layout.journal_head_at());
  *head = {before.operations + 1, before.bytes + peers.operation.bytes, collectives,
           counts ? std::uint64_t{peers.operation.signature} : before.signature};
  auto* const entry =
      reinterpret_cast<JournalEntry*>(mine + peers.layout.journal_at()) + before.operations % kJournalEntries;
  JournalEntry opened;
  opened.number = before.operations + 1;
  opened.what = packed_what(peers.operation, counts ? collectives : 0);
  opened.bytes = peers.operation.bytes;
  opened.begun_ns = wall_clock_ns();
  *entry = opened;
  return entry;
}

/// By all threads of each block, best while they would wait anyway. Once the communicator has failed there are no
/// entries: the last one is where it did. `before`: of journal_start().
__device__ inline void open_journal(const Peers& peers, const JournalStart& before, bool failed = false) {
  const bool writes = blockIdx.x == 0 && peers.journal && !failed;
  if (threadIdx.x == 0) open_entry() = writes ? begin_entry(peers, before.head) : nullptr;
  if (!writes || threadIdx.x >= peers.layout.ranks || threadIdx.x == peers.rank) return;
  if (peers.operation.signature != 0) tell_and_compare(peers, before);
}

__device__ inline void note_wait(std::uint32_t peer, std::uint64_t ns) {
  JournalEntry* const entry = open_entry();
  if (entry != nullptr) atomicMax(&entry->waited_ns[peer], static_cast<std::uint32_t>(ns));
}

/// By a thread that is through; the last one stays. `now`: 0, or the time if it is known.
__device__ inline void note_end(std::uint64_t now = 0) {
  JournalEntry* const entry = open_entry();
  if (entry == nullptr) return;
  if (now == 0) now = wall_clock_ns();
  atomicMax(reinterpret_cast<unsigned long long*>(&entry->ended_ns), static_cast<unsigned long long>(now));
}

}  // namespace tensorwire::cuda
