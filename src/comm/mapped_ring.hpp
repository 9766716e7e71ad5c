// How a rank tells a peer that maps its memory of a message: a ring of notes in the writer's memory, with one writer
// and one reader. A note is valid when its number is the next one, so the reader writes nothing and the writer reads
// nothing. The writer never laps a reader that keeps the protocol: it has fewer messages under way than there are
// notes.
//
// What the reader takes out is the peer's word. It must check it.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tensorwire::comm {

/// A message: `bytes` at `source` of the writer's memory, which belong at `offset` of the reader's slots for it.
struct MappedNote {
  std::uint32_t immediate = 0;
  std::uint64_t source = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// As it lies in the ring. All zero: never written.
struct alignas(32) MappedCell {
  std::atomic<std::uint64_t> head;  ///< the note's number, from 1, modulo 2^32, above; its immediate below
  std::atomic<std::uint64_t> source, offset, bytes;
};
static_assert(sizeof(MappedCell) == 32 && std::atomic<std::uint64_t>::is_always_lock_free);

/// Room for so many messages under way, and a power of two.
[[nodiscard]] constexpr std::uint32_t mapped_cells_for(std::uint32_t messages) noexcept {
  return std::bit_ceil(messages + 1);
}

class MappedRingWriter {
 public:
  MappedRingWriter() noexcept = default;
  /// @param cells a power of two
  MappedRingWriter(MappedCell* ring, std::uint32_t cells) noexcept : ring_(ring), mask_(cells - 1) {}

  /// Whoever sees the note sees everything that this thread wrote before.
  void push(const MappedNote& note) noexcept {
    MappedCell& cell = ring_[written_++ & mask_];
    cell.source.store(note.source, std::memory_order_relaxed);
    cell.offset.store(note.offset, std::memory_order_relaxed);
    cell.bytes.store(note.bytes, std::memory_order_relaxed);
    cell.head.store(std::uint64_t{written_} << 32 | note.immediate, std::memory_order_release);
  }

 private:
  MappedCell* ring_ = nullptr;
  std::uint32_t mask_ = 0;
  std::uint32_t written_ = 0;  ///< the number of the last note
};

class MappedRingReader {
 public:
  enum class Look : std::uint8_t {
    kNothing,
    kNote,
    kNonsense,  ///< the number is neither the next one nor the one of a lap before
  };

  MappedRingReader() noexcept = default;
  MappedRingReader(const MappedCell* ring, std::uint32_t cells) noexcept : ring_(ring), mask_(cells - 1) {}

  /// Whether take() would find anything.
  [[nodiscard]] bool has_news() const noexcept {
    return static_cast<std::uint32_t>(ring_[read_ & mask_].head.load(std::memory_order_acquire) >> 32) != stale();
  }
  [[nodiscard]] Look take(MappedNote& note) noexcept {
    const MappedCell& cell = ring_[read_ & mask_];
    const std::uint64_t head = cell.head.load(std::memory_order_acquire);
    const auto number = static_cast<std::uint32_t>(head >> 32);
    if (number == stale()) return Look::kNothing;
    if (number != read_ + 1) return Look::kNonsense;
    note.immediate = static_cast<std::uint32_t>(head);
    note.source = cell.source.load(std::memory_order_relaxed);
    note.offset = cell.offset.load(std::memory_order_relaxed);
    note.bytes = cell.bytes.load(std::memory_order_relaxed);
    ++read_;
    if ((read_ & mask_) == 0) first_lap_ = false;
    return Look::kNote;
  }

 private:
  /// The number that the next cell has had since the lap before.
  [[nodiscard]] std::uint32_t stale() const noexcept { return first_lap_ ? 0 : read_ - mask_; }

  const MappedCell* ring_ = nullptr;
  std::uint32_t mask_ = 0;
  std::uint32_t read_ = 0;  ///< the number of the last note
  bool first_lap_ = true;
};

}  // namespace tensorwire::comm
