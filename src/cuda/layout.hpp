// Where everything lies in a rank's scratch memory on its GPU, which all ranks of a communicator map. Pure arithmetic,
// shared by host and kernels. Every region has one writer: what a rank sends lies in the receiver's scratch, by sender.
//
// A *lane* is what block b of each rank's kernels shares: sequence numbers, lines, slots and flags of its own. Lanes
// know nothing of each other, so that no two blocks ever have to agree on anything inside a kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/journal.hpp"

namespace tensorwire::cuda {

inline constexpr std::uint32_t kMaxRanks = 8;
inline constexpr std::uint32_t kMaxLanes = 256;

/// A line is 16 bytes: two times 4 bytes of data and a 4-byte flag, stored and loaded as two 8-byte words.
inline constexpr std::uint32_t kLineBytes = 16;
inline constexpr std::uint32_t kLineData = 8;
/// Lines alternate between two halves: an operation can only begin to write a half again after all ranks are through
/// with what was in it (docs/gpu.md, "Why no barrier is needed").
inline constexpr std::uint32_t kHalves = 2;
/// Words are a ring of eight rounds, and what consumes them makes sure of that every second round (words.cu).
inline constexpr std::uint32_t kWordRing = 8;
inline constexpr std::uint32_t kFenceEvery = 2;
/// What lies in a word that nobody has written: a NaN of all types at once, which is never sent.
inline constexpr std::uint64_t kNothing = ~std::uint64_t{0};
/// Slots are a ring of four: up to two pieces ahead of the one waited for, and two not yet known to be consumed.
inline constexpr std::uint32_t kRing = 4;
/// What threads move at a time, and what all shares of a tensor are multiples of.
inline constexpr std::uint32_t kUnitBytes = 16;

/// A flag has a 32-byte sector of its own.
inline constexpr std::uint32_t kFlagBytes = 32;

/// The two uses of slots. With two ranks there is only the first.
enum class Phase : std::uint32_t { kScatter = 0, kGather = 1 };
/// What a flag counts, of a lane's pieces.
enum class Flag : std::uint32_t {
  kScattered = 0,
  kGathered = 1,
  kConsumed = 2,  ///< where the receiver says so; else it follows from what it sends
};
inline constexpr std::uint32_t kFlags = 3;

/// Messages between two ranks have *channels* of their own: a one-way channel for each ordered pair of ranks and each
/// block of a kernel that moves them. Unlike lanes they need nothing of third ranks. A place holds a message, or a
/// block's share of it, as lines, a larger one goes piece by piece through slots; both are rings of kRing.
inline constexpr std::uint32_t kMostChannels = 64;
inline constexpr std::uint32_t kChannelLines = 256;
enum class ChannelFlag : std::uint32_t {
  kArrived = 0,     ///< pieces in slots, as their sender says
  kTaken = 1,       ///< pieces out of slots, as their receiver says
  kLinesTaken = 2,  ///< messages out of lines, likewise
};
inline constexpr std::uint32_t kChannelFlags = 3;
/// What a rank counts of its channels with a peer.
enum class ChannelCounter : std::uint32_t { kSent = 0, kReceived = 1, kLinesSent = 2, kLinesReceived = 3 };
inline constexpr std::uint32_t kChannelStateBytes = 32;

/// How far a lane is, by protocol. Device memory, written by its own block only, so eager calls and graphs count on
/// from each other.
enum class Counter : std::uint32_t {
  kLines = 0,  ///< operations over lines
  kWords = 1,  ///< rounds of words
  kSlots = 2,  ///< pieces through slots
};
inline constexpr std::uint32_t kLaneStateBytes = 32;

/// The shape of the scratch; the same on all ranks.
struct Layout {
  std::uint32_t ranks = 0;
  std::uint32_t lanes = 0;
  std::uint32_t lines = 0;        ///< of each lane, sender and half
  std::uint32_t round_bytes = 0;  ///< of words, of each lane, sender and round: a multiple of 16
  std::uint32_t slot_bytes = 0;   ///< of each slot: a multiple of 16
  std::uint32_t flag_bits = 32;   ///< of a line's flag that are used; fewer in tests, to see them wrap around
  bool in_host = false;           ///< the scratch is memory of the host, across PCIe

  [[nodiscard]] constexpr std::uint32_t phases() const noexcept { return ranks == 2 ? 1 : 2; }

  // Errors, by the rank that reports one; then counters of lanes and of channels, flags, lines, words, slots, of
  // channels flags, lines and slots, and the journal with its head and what ranks tell of theirs: each on a 256-byte
  // boundary.
  [[nodiscard]] constexpr std::size_t error_at(std::uint32_t reporter) const noexcept {
    return std::size_t{reporter} * sizeof(std::uint64_t);
  }
  [[nodiscard]] constexpr std::size_t counter_at(std::uint32_t lane, Counter counter) const noexcept {
    return aligned(kMaxRanks * sizeof(std::uint64_t)) + std::size_t{lane} * kLaneStateBytes +
           static_cast<std::uint32_t>(counter) * sizeof(std::uint64_t);
  }
  [[nodiscard]] constexpr std::size_t channel_counter_at(std::uint32_t channel, std::uint32_t peer,
                                                         ChannelCounter counter) const noexcept {
    return aligned(counter_at(lanes, Counter::kLines)) + (std::size_t{channel} * ranks + peer) * kChannelStateBytes +
           static_cast<std::uint32_t>(counter) * sizeof(std::uint64_t);
  }
  /// What lies before this is for the rank itself but for errors of others: Peers::own.
  [[nodiscard]] constexpr std::size_t own_bytes() const noexcept {
    return aligned(channel_counter_at(channels(), 0, ChannelCounter::kSent));
  }
  [[nodiscard]] constexpr std::size_t flag_at(Flag flag, std::uint32_t lane, std::uint32_t sender) const noexcept {
    return own_bytes() + index(static_cast<std::uint32_t>(flag), lane, sender) * kFlagBytes;
  }
  /// The first line of a half.
  [[nodiscard]] constexpr std::size_t lines_at(std::uint32_t lane, std::uint32_t sender,
                                               std::uint32_t half) const noexcept {
    return aligned(flag_at(static_cast<Flag>(kFlags), 0, 0)) +
           ((std::size_t{lane} * ranks + sender) * kHalves + half) * lines * kLineBytes;
  }
  [[nodiscard]] constexpr std::size_t words_at(std::uint32_t lane, std::uint32_t sender,
                                               std::uint32_t place) const noexcept {
    return aligned(lines_at(lanes, 0, 0)) + ((std::size_t{lane} * ranks + sender) * kWordRing + place) * round_bytes;
  }
  [[nodiscard]] constexpr std::size_t words_bytes() const noexcept { return words_at(lanes, 0, 0) - words_at(0, 0, 0); }
  [[nodiscard]] constexpr std::size_t slot_at(Phase phase, std::uint32_t lane, std::uint32_t sender,
                                              std::uint32_t place) const noexcept {
    return aligned(words_at(lanes, 0, 0)) +
           (index(static_cast<std::uint32_t>(phase), lane, sender) * kRing + place) * slot_bytes;
  }
  [[nodiscard]] constexpr std::uint32_t channels() const noexcept {
    return lanes < kMostChannels ? lanes : kMostChannels;
  }
  [[nodiscard]] constexpr std::size_t channel_flag_at(std::uint32_t channel, std::uint32_t writer,
                                                      ChannelFlag flag) const noexcept {
    return aligned(slot_at(static_cast<Phase>(phases()), 0, 0, 0)) +
           ((std::size_t{channel} * ranks + writer) * kChannelFlags + static_cast<std::uint32_t>(flag)) * kFlagBytes;
  }
  [[nodiscard]] constexpr std::size_t channel_lines_at(std::uint32_t channel, std::uint32_t sender,
                                                       std::uint32_t place) const noexcept {
    return aligned(channel_flag_at(channels(), 0, ChannelFlag::kArrived)) +
           ((std::size_t{channel} * ranks + sender) * kRing + place) * kChannelLines * kLineBytes;
  }
  [[nodiscard]] constexpr std::size_t channel_slot_at(std::uint32_t channel, std::uint32_t sender,
                                                      std::uint32_t place) const noexcept {
    return aligned(channel_lines_at(channels(), 0, 0)) +
           ((std::size_t{channel} * ranks + sender) * kRing + place) * slot_bytes;
  }
  [[nodiscard]] constexpr std::size_t journal_head_at() const noexcept {
    return aligned(channel_slot_at(channels(), 0, 0));
  }
  /// Where `teller` says which collective it is in: told_of().
  [[nodiscard]] constexpr std::size_t told_at(std::uint32_t teller) const noexcept {
    return aligned(journal_head_at() + sizeof(JournalHead)) + std::size_t{teller} * sizeof(std::uint64_t);
  }
  [[nodiscard]] constexpr std::size_t journal_at() const noexcept { return aligned(told_at(kMaxRanks)); }
  [[nodiscard]] constexpr std::size_t bytes() const noexcept {
    return journal_at() + std::size_t{kJournalEntries} * sizeof(JournalEntry);
  }

  [[nodiscard]] constexpr std::uint32_t flag_mask() const noexcept {
    return flag_bits >= 32 ? ~0U : (1U << flag_bits) - 1;
  }
  /// Lines of each half that an operation writes anew although it does not need them, so that none still bears the flag
  /// of a whole turn of the flags ago when that flag comes up again.
  [[nodiscard]] constexpr std::uint32_t refreshed_lines() const noexcept { return (lines >> (flag_bits - 2)) + 1; }

 private:
  [[nodiscard]] static constexpr std::size_t aligned(std::size_t bytes) noexcept { return (bytes + 255) & ~255UL; }
  [[nodiscard]] constexpr std::size_t index(std::uint32_t which, std::uint32_t lane,
                                            std::uint32_t sender) const noexcept {
    return (std::size_t{which} * lanes + lane) * ranks + sender;
  }
};

}  // namespace tensorwire::cuda
