// How kernels keep the journal (journal.hpp). Thread 0 of block 0 opens an operation's entry; whoever waits for a peer,
// or ends, adds to it. Where the journal is off, or in other blocks, there is no entry, and one test of a shared word
// is all.
#pragma once

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

/// Thread 0 of block 0, as soon as it may touch memory: how far the journal is, which it needs only later. Loaded where
/// it is needed it would hold up the block for most of a microsecond.
__device__ inline JournalHead journal_head(const Peers& peers) {
  JournalHead head;
  if (blockIdx.x != 0 || threadIdx.x != 0 || !peers.journal) return head;
  const std::byte* const at = peers.scratch[peers.rank] + peers.layout.journal_head_at();
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0,%1}, [%2];"
               : "=l"(head.operations), "=l"(head.bytes)
               : "l"(at)
               : "memory");
  return head;
}

/// By thread 0 of each block, best while it would wait anyway. Once the communicator has failed there are no entries:
/// the last one is where it did. `before`: of journal_head().
__device__ inline void open_journal(const Peers& peers, const JournalHead& before, bool failed = false) {
  JournalEntry* entry = nullptr;
  if (blockIdx.x == 0 && peers.journal && !failed) {
    std::byte* const mine = peers.scratch[peers.rank];
    auto* const head = reinterpret_cast<JournalHead*>(mine + peers.layout.journal_head_at());
    *head = {before.operations + 1, before.bytes + peers.operation.bytes};
    entry = reinterpret_cast<JournalEntry*>(mine + peers.layout.journal_at()) + before.operations % kJournalEntries;
    JournalEntry opened;
    opened.number = before.operations + 1;
    opened.kind =
        static_cast<std::uint64_t>(peers.operation.dtype) << 8 | static_cast<std::uint64_t>(peers.operation.kind);
    opened.bytes = peers.operation.bytes;
    opened.begun_ns = wall_clock_ns();
    *entry = opened;
  }
  open_entry() = entry;
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
