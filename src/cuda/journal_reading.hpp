// What the journals of several ranks tell together: how far one GPU's clock is ahead of another's, what a rank was in
// at a moment, and what two ranks asked for that had to be alike. Pure functions of what was read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "cuda/journal.hpp"

namespace tensorwire::cuda {

/// One rank's entries, from old to new.
using Entries = std::span<const JournalEntry>;

/// "operation 21 (all-reduce, 8192 bytes of bf16)"
[[nodiscard]] std::string name_of(const JournalEntry& entry);
/// "all-reduce (sum), 8192 bytes of bf16"
[[nodiscard]] std::string request_of(const JournalEntry& entry);

/// How far the clock of `theirs` is ahead of that of `mine`. Clocks of two GPUs have nothing to do with each other, but
/// a collective in which all wait for all ends everywhere at nearly the same time: the last one that both have ended
/// tells. Nothing, where there is none.
[[nodiscard]] std::optional<std::int64_t> clock_ahead_ns(Entries mine, Entries theirs) noexcept;

/// A moment by the clock of the entries that it is asked of; what is less than `apart_ns` from it may be before or
/// after.
struct Moment {
  std::uint64_t ns = 0;
  std::uint64_t apart_ns = 0;

  /// Whether an operation that lasted long was under way. What comes and goes does not hold up anybody.
  [[nodiscard]] bool within(const JournalEntry& entry) const noexcept;
};

/// "was in operation 21 (...)", "was through with operation 20 (...)", "had begun nothing here"
[[nodiscard]] std::string doings_at(Entries entries, const Moment& moment);
/// The long one that was under way; null: none was.
[[nodiscard]] const JournalEntry* long_one_at(Entries entries, const Moment& moment) noexcept;

/// The entry of a collective, by the low half of its number; null: it is not kept.
[[nodiscard]] const JournalEntry* collective_in(Entries entries, std::uint32_t number) noexcept;

}  // namespace tensorwire::cuda
