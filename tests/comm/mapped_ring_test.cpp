// The ring of notes between ranks that map each other's memory: order over many laps, and what a reader makes of
// nonsense.
#include "comm/mapped_ring.hpp"

#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace tensorwire::comm {
namespace {

using Look = MappedRingReader::Look;

constexpr std::uint32_t kCells = 8;
using Ring = std::array<MappedCell, kCells>;

TEST(MappedRing, NotesComeOutOnceAndInOrder) {
  Ring ring{};
  MappedRingWriter writer{ring.data(), kCells};
  MappedRingReader reader{ring.data(), kCells};
  MappedNote note;
  EXPECT_EQ(reader.take(note), Look::kNothing);
  std::uint32_t written = 0, read = 0;
  for (std::uint32_t lap = 0; lap < 100; ++lap) {
    for (std::uint32_t i = 0; i < 1 + lap % kCells; ++i, ++written) writer.push({written, written + 1, 64, written});
    for (; read != written; ++read) {
      ASSERT_TRUE(reader.has_news());
      ASSERT_EQ(reader.take(note), Look::kNote);
      EXPECT_EQ(note.immediate, read);
      EXPECT_EQ(note.source, read + 1);
      EXPECT_EQ(note.offset, 64U);
      EXPECT_EQ(note.bytes, read);
    }
    EXPECT_FALSE(reader.has_news());
    EXPECT_EQ(reader.take(note), Look::kNothing);
  }
}

TEST(MappedRing, ThereIsACellMoreThanMessages) {
  EXPECT_EQ(mapped_cells_for(6), 8U);
  EXPECT_EQ(mapped_cells_for(7), 8U);
  EXPECT_EQ(mapped_cells_for(8), 16U);
}

TEST(MappedRing, AReaderThatWasLappedSaysSo) {
  Ring ring{};
  MappedRingWriter writer{ring.data(), kCells};
  MappedRingReader reader{ring.data(), kCells};
  MappedNote note;
  for (std::uint32_t i = 0; i <= kCells; ++i) writer.push({i, 0, 0, 0});
  EXPECT_EQ(reader.take(note), Look::kNonsense);
}

TEST(MappedRing, ANumberOutOfOrderIsNonsense) {
  for (const std::uint64_t number : {2U, 9U, 0xffffffffU}) {
    Ring ring{};
    MappedRingReader reader{ring.data(), kCells};
    ring[0].head = number << 32;
    MappedNote note;
    EXPECT_EQ(reader.take(note), Look::kNonsense) << number;
  }
}

TEST(MappedRing, WhoSeesTheNoteSeesTheBytes) {
  constexpr std::uint64_t kNotes = 200'000;
  Ring ring{};
  std::array<std::uint64_t, kCells> payload{};
  std::atomic<std::uint64_t> taken{0};
  std::thread peer{[&] {
    MappedRingWriter writer{ring.data(), kCells};
    for (std::uint64_t i = 0; i < kNotes; ++i) {
      while (i - taken.load(std::memory_order_acquire) >= kCells - 1) std::this_thread::yield();
      payload[i % kCells] = i;
      writer.push({static_cast<std::uint32_t>(i), i % kCells, 0, 8});
    }
  }};
  MappedRingReader reader{ring.data(), kCells};
  MappedNote note;
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < kNotes; ++i) {
    Look look = Look::kNothing;
    while ((look = reader.take(note)) == Look::kNothing) std::this_thread::yield();
    if (look != Look::kNote || payload[note.source] != i) ++wrong;
    taken.store(i + 1, std::memory_order_release);
  }
  peer.join();
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace tensorwire::comm
