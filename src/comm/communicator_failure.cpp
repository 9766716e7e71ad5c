// How a communicator fails: by its group, its link, its runner, the clock or an abort, always in one line that names
// the rank to blame. Whoever sees it first tells all ranks; each finds its own words for what the ranks reported.
#include <fmt/format.h>

#include "base/clock.hpp"
#include "comm/communicator_state.hpp"

namespace tensorwire::comm {

namespace {

/// When the link fails, the group often knows the real cause a moment later: a rank that died.
constexpr Ps kCauseGrace = 300 * kMillisecond;
constexpr Ps kDrainBound = 1 * kSecond;
/// How long all ranks are waited for when something is wrong. The process of one may be stopped.
constexpr Ps kAnswerBound = 250 * kMillisecond;

constexpr const char* kSameCalls = ". All ranks must make the same calls in the same order";

}  // namespace

bool Communicator::State::refuse(const std::string& why) noexcept {
  error_ = CommError{CommErrorKind::kArgument, -1,
                     fmt::format("{} on rank {}: {}", name_of(operation_.collective), config_.rank, why)};
  return false;
}

bool Communicator::State::fail(CommErrorKind kind, int peer, const std::string& why, Tell tell) noexcept {
  if (broken_) return false;
  broken_ = true;
  operation_.under_way = false;
  board_.fail(monotonic_now());
  error_ = CommError{kind, peer, fmt::format("{} on rank {}: {}", operation_name(), config_.rank, why)};
  // The others learn at once what they could only find out by waiting.
  if (tell == Tell::kSelf) group_->abort(error_->line);
  if (tell == Tell::kAccused || tell == Tell::kSelfAccused) {
    const bool disagrees = kind == CommErrorKind::kDisagreement;
    group_->accuse(tell == Tell::kAccused ? peer : static_cast<int>(config_.rank),
                   disagrees ? bootstrap::FailureKind::kDisagrees : bootstrap::FailureKind::kSilent, error_->line);
  }
  // The caller may free its buffers now. Where ranks disagree all of them are well and the writes end by themselves;
  // the queue pairs live on, for a rank that did not hear of it still needs our signatures to see it itself.
  if (kind == CommErrorKind::kDisagreement && drain_user_writes()) {
    close_windows();
  } else {
    link_->abandon();
  }
  const auto waiting = waiting_for();
  observer_->failed({error_->line, peer, waiting.peer, waiting.what});
  return false;
}

bool Communicator::State::drain_user_writes() noexcept {
  Waiter waiter{options_.wait, *link_};
  for (const Ps until = monotonic_now() + kDrainBound; user_writes_ != 0 && monotonic_now() < until;) {
    const int count = link_->poll(events_);
    if (count < 0) return false;
    for (int i = 0; i < count; ++i) {
      if (events_[static_cast<std::size_t>(i)].kind == LinkEventKind::kSent) --user_writes_;
    }
    if (count == 0) waiter.pause();
  }
  return user_writes_ == 0;
}

bool Communicator::State::fail_by_group() noexcept {
  using bootstrap::FailureKind;
  const auto failed = group_->failed_rank();
  if (!failed) return fail(CommErrorKind::kPeerFailed, -1, "a rank failed", Tell::kNobody);
  const int self = static_cast<int>(config_.rank);
  const std::string who = group_->name(failed->rank);
  if (failed->kind == FailureKind::kDisagrees) {
    if (fail_by_testimony(Tell::kNobody)) return false;
    return fail(CommErrorKind::kDisagreement, failed->rank == self ? failed->told_by : failed->rank,
                fmt::format("{} disagrees: {}", who, failed->reason), Tell::kNobody);
  }
  if (failed->kind == FailureKind::kExcluded) {
    return fail(CommErrorKind::kPeerFailed, failed->told_by, failed->reason, Tell::kNobody);
  }
  if (failed->rank == self && failed->told_by >= 0) {
    return fail(CommErrorKind::kPeerFailed, failed->told_by,
                fmt::format("{} gave this rank up: {}", group_->name(failed->told_by), failed->reason), Tell::kNobody);
  }
  std::string why = fmt::format("{} failed: {}", who, failed->reason);
  if (failed->kind == FailureKind::kDied) {
    // Not everybody hears from everybody. Who knows more says so when asked.
    const auto heard = runner_->last_heard(static_cast<std::uint32_t>(failed->rank));
    board_.set_subject(failed->rank, heard);
    if (!heard.any) hear_of(failed->rank, kAnswerBound);
    why += "; " + last_act_of(failed->rank);
  }
  return fail(CommErrorKind::kPeerFailed, failed->rank, why, Tell::kNobody);
}

bool Communicator::State::fail_by_testimony(Tell tell, bool once_settled) noexcept {
  const std::vector<Testimony> all = testimonies();
  const int self = static_cast<int>(config_.rank);
  const auto found = find_disagreement(all, self);
  if (!found || (once_settled && !found->settled)) return false;
  std::string why = fmt::format("{} ({}", found->line, group_->host(found->culprit));
  if (found->culprit != self) why += "; " + last_act_of(found->culprit);
  why += fmt::format("){}", kSameCalls);
  if (found->culprit == self && tell == Tell::kAccused) tell = Tell::kSelfAccused;
  fail(CommErrorKind::kDisagreement, found->culprit == self ? found->witness : found->culprit, why, tell);
  return true;
}

bool Communicator::State::fail_by_link() noexcept {
  for (const Ps until = monotonic_now() + kCauseGrace; monotonic_now() < until && !group_->failed();) nap(kMillisecond);
  hear_all_ranks(kAnswerBound);
  if (group_->failed()) return fail_by_group();
  const LinkFailure* failure = link_->failure();
  if (failure == nullptr) return fail(CommErrorKind::kTransport, -1, "the link failed without a reason");
  const int peer = static_cast<int>(failure->peer);
  if (!failure->unreachable) return fail(CommErrorKind::kTransport, peer, failure->line);
  return fail(CommErrorKind::kTransport, peer, failure->line + "; " + last_act_of(peer), Tell::kAccused);
}

bool Communicator::State::fail_by_runner() noexcept {
  const collective::RunnerError& error = runner_->error();
  if (error.failure == collective::Failure::kTransport) return fail_by_link();
  // The one whose message we happened to see first need not be the one that is wrong: all are heard.
  hear_all_ranks(kAnswerBound);
  if (group_->failed()) return fail_by_group();
  if (fail_by_testimony(Tell::kAccused)) return false;
  const int peer = static_cast<int>(error.peer);
  const bool disagrees = error.failure == collective::Failure::kSignature;
  std::string why = fmt::format("{} ({}; {})", to_string(error), group_->host(peer), last_act_of(peer));
  if (!disagrees) return fail(CommErrorKind::kInternal, peer, why);
  return fail(CommErrorKind::kDisagreement, peer, why + kSameCalls, Tell::kAccused);
}

bool Communicator::State::fail_by_timeout() noexcept {
  if (fail_by_testimony(Tell::kAccused)) return false;
  std::string why = fmt::format("not over within {}; {}", seconds_text(options_.operation_timeout), waiting_text());
  const auto waiting = waiting_for();
  if (waiting.peer >= config_.ranks) return fail(CommErrorKind::kTimeout, -1, why);
  const int peer = static_cast<int>(waiting.peer);
  const int straggler = find_straggler(testimonies(), static_cast<int>(config_.rank), peer);
  if (straggler != peer) why += fmt::format(", in the end for {}", group_->name(straggler));
  return fail(CommErrorKind::kTimeout, straggler, why + ": " + last_act_of(straggler), Tell::kAccused);
}

void Communicator::State::abort(const std::string& reason) noexcept {
  {
    const std::scoped_lock lock{abort_mutex_};
    if (abort_requested_.load(std::memory_order_relaxed)) return;
    abort_reason_ = reason;
  }
  abort_requested_.store(true, std::memory_order_release);
  group_->abort(reason);
}

void Communicator::State::retire(const std::string& why) noexcept {
  if (!broken_) {
    broken_ = true;
    operation_.under_way = false;
    board_.fail(monotonic_now());
    error_ = CommError{CommErrorKind::kAborted, -1, why};
  }
  link_->retire();
}

}  // namespace tensorwire::comm
