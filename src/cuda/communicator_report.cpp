// What a communicator tells of itself: its journal, and why it failed. Journals of all ranks are read through the
// mappings of their scratch, so an error can name what a rank was in that never came, in this communicator or, where
// this process has more of them, in another one.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "base/log.hpp"
#include "cuda/communicator_state.hpp"
#include "cuda/driver.cuh"

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
  std::erase_if(entries, [](const JournalEntry& entry) { return entry.number == 0; });
  std::ranges::sort(entries, {}, &JournalEntry::number);
  return entries;
}

/// Around a moment of one GPU's clock, as another one may show it: `slack` to either side.
struct Moment {
  std::uint64_t ns, slack;

  [[nodiscard]] bool within(const JournalEntry& entry) const {
    return entry.begun_ns <= ns + slack && (entry.ended_ns == 0 || entry.ended_ns + slack >= ns) &&
           (entry.ended_ns == 0 || entry.ended_ns - entry.begun_ns > slack);
  }
};

std::string name_of(const JournalEntry& entry) {
  const auto dtype = static_cast<collective::DType>(entry.kind >> 8);
  return fmt::format("operation {} ({}, {} bytes{})", entry.number,
                     name_of(static_cast<OperationKind>(entry.kind & 0xff)), entry.bytes,
                     collective::known(dtype) ? fmt::format(" of {}", collective::name_of(dtype)) : "");
}

/// What a rank was in. What waited was long, so it stands out from what came and went.
std::string doings_of(const CommunicatorState& state, std::size_t rank, const Moment& moment) {
  const std::vector<JournalEntry> entries = journal_of(state, rank);
  const auto was_in = std::ranges::find_if(entries, [&](const auto& entry) { return moment.within(entry); });
  if (was_in != entries.end()) return "was in " + name_of(*was_in);
  // Clocks of two GPUs differ a little, and what waited for the one that gave up goes on at once.
  constexpr std::uint64_t kClocksApartNs = 5'000'000;
  const auto later =
      std::ranges::find_if(entries, [&](const auto& entry) { return entry.begun_ns + kClocksApartNs > moment.ns; });
  if (later == entries.begin()) return "had begun nothing here";
  return "was through with " + name_of(*std::prev(later));
}

/// What rank `rank` of `state` was in elsewhere: in communicators of this process that it is a rank of, too.
std::string doings_elsewhere(const CommunicatorState& state, std::size_t rank, const Moment& moment) {
  const std::scoped_lock lock{registry().mutex};
  for (const CommunicatorState* other : registry().states) {
    if (other->scratch.front() == state.scratch.front()) continue;  // this one, as another thread's rank sees it
    for (std::size_t at = 0; at < other->who.size(); ++at) {
      if (other->who[at] != state.who[rank] || other->peers.rank == at) continue;
      const std::vector<JournalEntry> entries = journal_of(*other, at);
      const auto was_in = std::ranges::find_if(entries, [&](const auto& entry) { return moment.within(entry); });
      if (was_in != entries.end()) return ", and in " + name_of(*was_in) + " of another communicator";
    }
  }
  return {};
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
  return cudaMemcpyAsync(to, peers.scratch[rank] + at, bytes, cudaMemcpyDefault, side) == cudaSuccess &&
         cudaStreamSynchronize(side) == cudaSuccess;
}

Communicator::Journal Communicator::journal() const {
  JournalHead head;
  const auto me = static_cast<std::size_t>(rank());
  if (!state_->read(me, state_->peers.layout.journal_head_at(), &head, sizeof head)) return {};
  return {head.operations, head.bytes, journal_of(*state_, me)};
}

std::string Communicator::failure_text() const {
  const std::optional<Failure> failed = failure();
  if (!failed) return {};
  if (failed->kind == FailureKind::kAborted) {
    return fmt::format("collectives on the GPU of rank {}: rank {} ended them because of rank {}", rank(),
                       failed->reporter, failed->peer);
  }
  const std::uint64_t bound = state_->peers.bound_ns;
  const Moment moment{__atomic_load_n(&state_->board->error_ns, __ATOMIC_RELAXED), bound / 4};
  return fmt::format(
      "collectives on the GPU of rank {}: rank {} waited {} ms for rank {} (lane {}, sequence {}). Rank {} {}; rank {} "
      "{}{}. Is that rank alive, and does it make the same calls in the same order?",
      rank(), failed->reporter, bound / 1'000'000, failed->peer, failed->lane, failed->sequence, failed->reporter,
      doings_of(*state_, failed->reporter, moment), failed->peer, doings_of(*state_, failed->peer, moment),
      doings_elsewhere(*state_, failed->peer, moment));
}

}  // namespace tensorwire::cuda
