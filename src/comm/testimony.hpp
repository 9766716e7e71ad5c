// What the ranks of a communicator say when something is wrong, and what follows from it: who made another call than
// the others, whom everybody waits for in the end, and what a rank did last. Pure functions of what was reported.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "comm/rank_report.hpp"

namespace tensorwire::comm {

/// What is known of one rank.
struct Testimony {
  /// kSilent: it did not answer, so its process is stopped, cut off or dead. kAbsent: its process answers, but it has
  /// no such communicator (any more, or yet).
  enum class Presence : std::uint8_t { kSilent, kAbsent, kPresent };

  std::string name;  ///< "rank 1 on gpu07"
  Presence presence = Presence::kSilent;
  std::optional<RankReport> report;  ///< its last one, also where it is silent by now
  Ps age = 0;                        ///< of the report
};

/// "3.2 s"
[[nodiscard]] std::string seconds_text(Ps duration);

/// Two calls that should have been the same.
struct Disagreement {
  int culprit = -1;
  int witness = -1;  ///< a rank that is not alone with its call
  collective::Signature theirs, right;
  std::string line;      ///< as the rank that looks sees it; names the culprit, no host
  bool settled = false;  ///< ranks that have not been in this operation yet cannot tip the scales
};

/// The first operation that the reports disagree on. The most frequent call is right; where there are equally many,
/// the one of `self`. @param all by rank
[[nodiscard]] std::optional<Disagreement> find_disagreement(std::span<const Testimony> all, int self);

/// Follows who waits for whom from `self` to the one that waits for nobody or does not answer; `self` waits for
/// `waiting_for` (-1: nobody). Where they wait in a circle it is `waiting_for`.
[[nodiscard]] int find_straggler(std::span<const Testimony> all, int self, int waiting_for);

/// What the rank did last and how long ago, in words: "it finished all-reduce 16 (262144 bytes) 3.2 s ago and has
/// called nothing since". `heard`: what `self` heard of it by messages.
[[nodiscard]] std::string last_act(std::span<const Testimony> all, int rank, int self, const collective::Heard& heard);

}  // namespace tensorwire::comm
