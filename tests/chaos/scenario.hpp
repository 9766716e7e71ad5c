// What happens in one round: a pure function of seed and round, known to the controller and to every rank alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tensorwire::chaos {

inline constexpr int kRanks = 4;

enum class Trouble : std::uint8_t {
  kNone,
  kSlow,      ///< the guilty rank takes its time before each operation
  kPause,     ///< stopped, and resumed within the bound
  kStop,      ///< stopped for longer than the bound, and resumed when the others have gone on without it
  kKill,      ///< up to two ranks
  kAbort,     ///< another thread of the guilty rank calls twCommAbort
  kForsake,   ///< the guilty rank calls nothing; other threads of the others call twCommShrink with TW_SHRINK_ABORT
  kDisagree,  ///< the guilty rank makes another call than the others
};

struct Scenario {
  std::uint64_t seed = 0;  ///< of what is computed in this round
  Trouble trouble = Trouble::kNone;
  std::vector<int> guilty;          ///< ranks, ascending
  std::vector<int> process_of;      ///< [rank]: which of the controller's processes it is
  std::vector<std::string> faults;  ///< [rank]: TENSORWIRE_FAULTS, "" for none
  bool packets = false;             ///< twPathPackets
  bool windows = false;             ///< buffers are registered ahead
  int operation = 0;                ///< before which one the trouble begins
  int delay_us = 0;                 ///< from then until the signal, or the other thread's call
  int pause_ms = 0;                 ///< kPause: how long; kSlow: at most so long before each operation
  int operations = 0;               ///< where nobody fails
  int bound_ms = 0;                 ///< of one operation; longer under sanitizers

  /// Whether the communicator must come to its end for this.
  [[nodiscard]] bool is_fatal() const noexcept { return trouble >= Trouble::kStop; }
  [[nodiscard]] bool is_guilty(int rank) const noexcept;
  /// Ranks that must go on, ascending.
  [[nodiscard]] std::vector<int> survivors() const;
};

/// Process 0 is never killed, so that one process lives through all rounds.
[[nodiscard]] Scenario scenario(std::uint64_t seed, std::uint64_t round);

/// One line.
[[nodiscard]] std::string to_string(const Scenario& scenario);

}  // namespace tensorwire::chaos
