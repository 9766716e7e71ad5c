// The litmus build (TENSORWIRE_LITMUS: a program of its own, tests/litmus) asks whether the protocols rely on luck:
// hashed delays between their steps, 16-byte stores torn into the two words that are promised to be whole, slots
// poisoned once they are read; and planted mistakes, each of which its checks must notice. In every other build all of
// this is nothing.
#pragma once

#include <cstdint>

namespace tensorwire::cuda {

enum class Mistake : std::uint32_t {
  kNone,
  kWordsNotEmptied,      ///< a word that was taken stays where it was
  kWordsOnePlace,        ///< all rounds of words share a place
  kWordsHalfLooked,      ///< the second word of a unit is taken for granted
  kLinesOneHalf,         ///< an operation writes where the one before may still be read
  kLinesHalfLooked,      ///< the second word of a line is taken for granted
  kLinesNotRenewed,      ///< lines keep the flag of a whole turn ago
  kFlagBeforeData,       ///< a piece is announced before it is stored
  kNoMeetingBeforeFlag,  ///< a piece is announced while other threads still store it
  kRingIgnored,          ///< a slot is written again before it was consumed
  kConsumedTooEarly,     ///< a slot is said to be consumed before it was read
  kSharedRegion,         ///< slots lie where words are
  kTakenTooEarly,        ///< a message's slot is said to be taken before it was read
  kSequenceNotKept,      ///< a lane forgets that an operation was
};

#ifdef TENSORWIRE_LITMUS
struct Litmus {
  Mistake mistake = Mistake::kNone;
  std::uint64_t seed = 0;
};
/// What the communicators that are made next run with.
Litmus& litmus_of_process() noexcept;
#endif

}  // namespace tensorwire::cuda
