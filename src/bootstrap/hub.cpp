// The caller's side of a hub: collective calls, failure, goodbye. hub_watch.cpp has the watcher's.
#include "bootstrap/hub.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "bootstrap/names.hpp"

namespace tensorwire::bootstrap {

namespace {

constexpr std::size_t kContributionOverhead = 64;
/// How long a rank waits for rank 0 to say who is missing, after its own bound has passed.
constexpr Ps kVerdictBound = 1 * kSecond;
constexpr Ps kAbortFlushBound = 500 * kMillisecond;
/// A goodbye must be taken before the socket is closed: a close with unread bytes would reset the connection.
constexpr Ps kLingerBound = 250 * kMillisecond;

std::chrono::nanoseconds nanoseconds(Ps duration) { return std::chrono::nanoseconds{duration / kNanosecond}; }

std::size_t largest_body(bool serves, std::size_t world_size) {
  return serves ? kMaxPayload + kContributionOverhead : kMaxGathered + 4 * world_size + kContributionOverhead;
}

/// Signals belong to the application's threads.
std::thread start_without_signals(auto body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread{std::move(body)};
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

Hub::Hub(int rank, Joined joined, Ps timeout)
    : rank_(rank),
      hosts_(std::move(joined.hosts)),
      timeout_(timeout),
      table_(hosts_),
      door_(std::move(joined.door)),
      doors_(std::move(joined.doors)),
      line_secret_(std::move(joined.line_secret)) {
  for (Link& link : joined.links) {
    link.reader.set_max_body(largest_body(serves(), hosts_.size()));
    peers_.emplace_back(std::move(link));
  }
  if (peers_.empty()) return;
  wake_ = Socket{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (!wake_) throw system_error("make an eventfd", errno);
  watcher_ = start_without_signals([this] { watch(); });
}

Hub::~Hub() { leave(); }

std::string Hub::name(int rank) const {
  return fmt::format("rank {} on {}", rank, hosts_[static_cast<std::size_t>(rank)]);
}

std::vector<Bytes> Hub::call(CallKind kind, int root, std::span<const std::byte> mine, Ps bound) {
  const std::string what{to_string(kind)};
  if (mine.size() > kMaxPayload) {
    throw Error{what, fmt::format("{} bytes are more than {}", mine.size(), format_bytes(kMaxPayload))};
  }
  if (bound <= 0) bound = timeout_;
  Lock lock{mutex_};
  if (leaving_) throw Error{what, "this rank has left the group"};
  if (failure_) throw_failed(kind);

  const std::uint64_t sequence = next_sequence_++;
  Contribution contribution{sequence, kind, static_cast<std::uint32_t>(root), {mine.begin(), mine.end()}};
  if (serves()) {
    contribute(rank_, std::move(contribution));
  } else if (!server_left_) {
    send(peers_.front(), encode_frame(FrameType::kContribution, encode(contribution)));
  }
  const auto settled = [&] { return outcomes_.contains(sequence) || failure_ || server_left_; };
  if (!changed_.wait_for(lock, nanoseconds(bound), settled)) give_up_on(lock, sequence, kind, bound);

  auto found = outcomes_.extract(sequence);
  if (!found.empty() && found.mapped().error.empty()) return std::move(found.mapped().parts);
  if (!found.empty()) throw Error{what, found.mapped().error, "Look at the log of that rank"};
  if (failure_) throw_failed(kind);
  throw Error{what, server_left_ ? name(0) + " has left the group" : name(0) + " does not answer",
              "Look at the log of rank 0"};
}

/// The bound has passed. Rank 0 knows who is missing and ends the call for everyone.
void Hub::give_up_on(Lock& lock, std::uint64_t sequence, CallKind kind, Ps bound) {
  const std::string within = format_duration(bound);
  if (serves()) {
    doom({sequence, fmt::format("{} did not come to {} within {}", rank_list(table_.missing(sequence)), to_string(kind),
                                within)});
    return;
  }
  send(peers_.front(), encode_frame(FrameType::kCancel, encode(Verdict{sequence, within})));
  changed_.wait_for(lock, nanoseconds(kVerdictBound),
                    [&] { return outcomes_.contains(sequence) || failure_ || server_left_; });
}

void Hub::contribute(int rank, Contribution contribution) {
  const std::uint64_t sequence = contribution.sequence;
  GatherTable::Step step = table_.add(rank, std::move(contribution));
  if (!step.doomed.empty()) {
    doom({sequence, step.doomed});
  } else if (step.complete) {
    Result result{sequence, *std::move(step.complete)};
    send_to_all(encode_frame(FrameType::kResult, encode(result)));
    outcomes_[sequence].parts = std::move(result.payloads);
    changed_.notify_all();
  }
}

void Hub::doom(const Verdict& verdict) {
  table_.doom(verdict.sequence, verdict.text);
  send_to_all(encode_frame(FrameType::kDoomed, encode(verdict)));
  if (!is_past(verdict.sequence)) outcomes_[verdict.sequence].error = verdict.text;
  changed_.notify_all();
}

void Hub::throw_failed(CallKind during) const {
  throw Error{std::string{to_string(during)},
              fmt::format("rank {} on {} failed: {}", failure_->rank, failure_->host, failure_->reason),
              "Look at its log"};
}

std::string Hub::address_of(int rank) const {
  const Lock lock{mutex_};
  const auto peer = std::ranges::find_if(peers_, [&](const Peer& other) { return other.link.rank == rank; });
  if (peer != peers_.end()) return peer->open() ? remote_address(peer->link.socket).text() : std::string{};
  const auto at = static_cast<std::size_t>(rank);
  return at < doors_.size() && doors_[at].length() != 0 ? doors_[at].text() : std::string{};
}

std::optional<FailedRank> Hub::failed_rank() const {
  if (!failed()) return std::nullopt;
  const std::lock_guard lock{mutex_};
  return failure_;
}

void Hub::declare_failed(FailedRank failed) {
  if (failure_) return;
  if (serves()) {
    const Failure news{static_cast<std::uint32_t>(failed.rank), failed.host, failed.reason, failed.kind,
                       failed.told_by};
    // The others are told first: this process may end as soon as it knows. Who told this one hears that it knows.
    send_to_all(encode_frame(FrameType::kFailed, encode(news)));
  }
  failure_ = std::move(failed);
  failed_.store(true, std::memory_order_relaxed);
  changed_.notify_all();
}

void Hub::abort(std::string_view reason) noexcept try {
  give_up({static_cast<std::uint32_t>(rank_), {}, clean_text(reason), FailureKind::kGaveUp, -1});
} catch (...) {
  // Out of memory or of threads: the connection's end will tell the others instead.
}

void Hub::accuse(int rank, FailureKind kind, std::string_view reason) noexcept try {
  if (rank < 0 || static_cast<std::size_t>(rank) >= hosts_.size()) return abort(reason);
  give_up({static_cast<std::uint32_t>(rank), {}, clean_text(reason), kind, rank_});
} catch (...) {
  // As in abort().
}

void Hub::give_up(const Failure& news) {
  Lock lock{mutex_};
  if (failure_ || leaving_) return;
  if (!serves()) {
    own_news_ = news;
    send_to_all(news.told_by < 0 ? encode_frame(FrameType::kAbort, encode_text(news.reason))
                                 : encode_frame(FrameType::kAccuse, encode(news)));
    if (centre_is_silent_) {
      tell_by_lines(encode_frame(FrameType::kFailed, encode(news)));
    } else {
      expect_answer(news.rank == 0 ? 0 : kPatience);
    }
  }
  const int rank = static_cast<int>(news.rank);
  declare_failed({rank, hosts_[news.rank], news.reason, news.kind, news.told_by});
  const auto all_told = [this] { return all_flushed() && answer_due_ == kNever; };
  changed_.wait_for(lock, nanoseconds(kAbortFlushBound), all_told);
}

void Hub::leave() noexcept try {
  {
    const Lock lock{mutex_};
    if (leaving_) return;
    leaving_ = true;
    answer_due_ = kNever;
    linger_until_ = monotonic_now() + kLingerBound;
    send_to_all(encode_frame(FrameType::kGoodbye, {}));
    tell_by_lines(encode_frame(FrameType::kGoodbye, {}));
    wake_watcher();
  }
  if (watcher_.joinable()) watcher_.join();
} catch (...) {
  // As in abort().
}

}  // namespace tensorwire::bootstrap
