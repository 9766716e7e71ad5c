#include "cuda/journal_reading.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

namespace tensorwire::cuda {

namespace {

std::string bytes_of(const JournalEntry& entry) {
  const collective::DType dtype = dtype_of(entry);
  return fmt::format("{} bytes{}", entry.bytes,
                     collective::known(dtype) ? fmt::format(" of {}", collective::name_of(dtype)) : "");
}

/// Whether nobody is through with it before all have come.
bool waits_for_all(const JournalEntry& entry) noexcept {
  const OperationKind kind = kind_of(entry);
  return kind != OperationKind::kBroadcast && kind != OperationKind::kMessages;
}

}  // namespace

std::string name_of(const JournalEntry& entry) {
  return fmt::format("operation {} ({}, {})", entry.number, name_of(kind_of(entry)), bytes_of(entry));
}

std::string request_of(const JournalEntry& entry) {
  const collective::Op op = op_of(entry);
  return fmt::format("{}{}, {}", name_of(kind_of(entry)),
                     collective::known(op) ? fmt::format(" ({})", collective::name_of(op)) : "", bytes_of(entry));
}

std::optional<std::int64_t> clock_ahead_ns(Entries mine, Entries theirs) noexcept {
  for (const JournalEntry& own : std::views::reverse(mine)) {
    if (own.ended_ns == 0 || collective_of(own) == 0 || !waits_for_all(own)) continue;
    const JournalEntry* const other = collective_in(theirs, collective_of(own));
    if (other == nullptr || other->ended_ns == 0) continue;
    return static_cast<std::int64_t>(other->ended_ns - own.ended_ns);
  }
  return std::nullopt;
}

bool Moment::within(const JournalEntry& entry) const noexcept {
  if (entry.begun_ns + apart_ns > ns) return false;
  return entry.ended_ns == 0 || (entry.ended_ns + apart_ns >= ns && entry.ended_ns - entry.begun_ns > apart_ns);
}

const JournalEntry* long_one_at(Entries entries, const Moment& moment) noexcept {
  const auto found = std::ranges::find_if(entries, [&](const JournalEntry& entry) { return moment.within(entry); });
  return found == entries.end() ? nullptr : &*found;
}

std::string doings_at(Entries entries, const Moment& moment) {
  if (const JournalEntry* const was_in = long_one_at(entries, moment)) return "was in " + name_of(*was_in);
  // What waited for the one that gave up goes on at once, so it is not told apart from what came after.
  const auto later = std::ranges::find_if(
      entries, [&](const JournalEntry& entry) { return entry.begun_ns + moment.apart_ns > moment.ns; });
  if (later == entries.begin()) return "had begun nothing here";
  return "was through with " + name_of(*std::prev(later));
}

const JournalEntry* collective_in(Entries entries, std::uint32_t number) noexcept {
  const auto found = std::ranges::find_if(
      entries, [&](const JournalEntry& entry) { return number != 0 && collective_of(entry) == number; });
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace tensorwire::cuda
