// What a communicator tells of itself: its journal, and why it failed. Journals of all ranks are read through the
// mappings of their scratch, so an error can name what a rank was in that never came, in this communicator or, where
// this process has more of them, in another one.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "base/log.hpp"
#include "cuda/communicator_state.hpp"
#include "cuda/driver.cuh"
#include "cuda/journal_reading.hpp"

namespace tensorwire::cuda {

namespace {

/// All communicators of this process, for errors that are about two of them.
struct Registry {
  std::mutex mutex;
  std::vector<const CommunicatorState*> states;
};
Registry& registry() {
  static Registry all;
  return all;
}

/// What a rank wrote down, from old to new. Empty: nothing, or it cannot be read.
std::vector<JournalEntry> journal_of(const CommunicatorState& state, std::size_t rank) {
  std::vector<JournalEntry> entries(kJournalEntries);
  if (!state.read(rank, state.peers.layout.journal_at(), entries.data(), entries.size() * sizeof(JournalEntry)))
    return {};
  std::erase_if(entries, [](const JournalEntry& entry) { return entry.number == 0 || entry.begun_ns == 0; });
  std::ranges::sort(entries, {}, &JournalEntry::number);
  return entries;
}

/// When this rank's communicator failed, by the clock of the GPU that `theirs` are of.
Moment moment_of_failure(const CommunicatorState& state, Entries mine, Entries theirs) {
  // Of clocks that were compared, and what goes on at once when the one that gave up lets it.
  constexpr std::uint64_t kApartNs = 5'000'000;
  const std::uint64_t ns = __atomic_load_n(&state.board->error_ns, __ATOMIC_RELAXED);
  const auto ahead = mine.data() == theirs.data() ? std::int64_t{0} : clock_ahead_ns(mine, theirs);
  if (ahead) return {ns + static_cast<std::uint64_t>(*ahead), kApartNs};
  return {ns, state.peers.bound_ns / 4};
}

/// What rank `rank` of `state` was in elsewhere: in communicators of this process that it is a rank of, too.
std::string doings_elsewhere(const CommunicatorState& state, std::size_t rank, const Moment& moment) {
  const std::scoped_lock lock{registry().mutex};
  for (const CommunicatorState* other : registry().states) {
    if (other->scratch.front() == state.scratch.front()) continue;  // this one, as another thread's rank sees it
    for (std::size_t at = 0; at < other->who.size(); ++at) {
      if (other->who[at] != state.who[rank] || other->peers.rank == at) continue;
      const std::vector<JournalEntry> entries = journal_of(*other, at);
      const JournalEntry* const was_in = long_one_at(entries, moment);
      if (was_in != nullptr) return ", and in " + name_of(*was_in) + " of another communicator";
    }
  }
  return {};
}

std::string text_of_timeout(const CommunicatorState& state, const Failure& failed) {
  const std::vector<JournalEntry> mine = journal_of(state, state.peers.rank);
  const std::vector<JournalEntry> reporters =
      failed.reporter == state.peers.rank ? mine : journal_of(state, failed.reporter);
  const std::vector<JournalEntry> peers = journal_of(state, failed.peer);
  const Moment of_peer = moment_of_failure(state, mine, peers);
  return fmt::format(
      "collectives on the GPU of rank {}: rank {} waited {} ms for rank {} (lane {}, sequence {}). Rank {} {}; rank {} "
      "{}{}. Is that rank alive, and does it make the same calls in the same order?",
      state.peers.rank, failed.reporter, state.peers.bound_ns / 1'000'000, failed.peer, failed.lane, failed.sequence,
      failed.reporter, doings_at(reporters, moment_of_failure(state, mine, reporters)), failed.peer,
      doings_at(peers, of_peer), doings_elsewhere(state, failed.peer, of_peer));
}

std::string text_of_disagreement(const CommunicatorState& state, const Failure& failed) {
  const auto asked = [&](std::size_t rank) {
    const std::vector<JournalEntry> entries = journal_of(state, rank);
    const JournalEntry* const entry = collective_in(entries, failed.sequence);
    return entry != nullptr ? request_of(*entry) : std::string{"an operation that it has no record of"};
  };
  return fmt::format(
      "collectives on the GPU of rank {}: ranks {} and {} disagree on collective {}: rank {} asked for {}; rank {} for "
      "{}. All ranks must make the same calls in the same order",
      state.peers.rank, failed.reporter, failed.peer, failed.sequence, failed.reporter, asked(failed.reporter),
      failed.peer, asked(failed.peer));
}

}  // namespace

void CommunicatorState::enlist() const {
  const std::scoped_lock lock{registry().mutex};
  registry().states.push_back(this);
}
void CommunicatorState::strike() const noexcept {
  const std::scoped_lock lock{registry().mutex};
  std::erase(registry().states, this);
}

bool CommunicatorState::read(std::size_t rank, std::size_t at, void* to, std::size_t bytes) const noexcept {
  const OnDevice current(device);
  const BesideCaptures beside;
  return cudaMemcpyAsync(to, peers.scratch[rank] + at, bytes, cudaMemcpyDefault, side) == cudaSuccess &&
         cudaStreamSynchronize(side) == cudaSuccess;
}

Communicator::Journal Communicator::journal() const {
  JournalHead head;
  const auto me = static_cast<std::size_t>(rank());
  if (!state_->read(me, state_->peers.layout.journal_head_at(), &head, sizeof head)) return {};
  const OnDevice current(state_->device);
  const BesideCaptures beside;
  const auto clock = state_->clock->read();
  return {head.operations, head.bytes, journal_of(*state_, me), clock};
}

std::string Communicator::failure_text() const {
  const std::optional<Failure> failed = failure();
  if (!failed) return {};
  if (failed->kind == FailureKind::kAborted) {
    return fmt::format("collectives on the GPU of rank {}: rank {} ended them because of rank {}", rank(),
                       failed->reporter, failed->peer);
  }
  if (failed->kind == FailureKind::kDisagreement) return text_of_disagreement(*state_, *failed);
  return text_of_timeout(*state_, *failed);
}

}  // namespace tensorwire::cuda
