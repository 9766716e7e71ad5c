// What a communicator does while an operation makes it wait: it looks for aborts, deaths and the clock, tells others
// whom it waits for, asks all ranks what they are doing, and warns.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "comm/communicator_state.hpp"

namespace tensorwire::comm {

namespace {

/// Credit goes with the next write of an operation; so long without one is too long for who may need it.
constexpr Ps kCreditPatience = 1 * kMillisecond;
// A healthy wait is far shorter; with the retry limit of about half a second after it, a dead peer is told within 2 s.
constexpr Ps kProbeInterval = 1 * kSecond;
constexpr Ps kLookInterval = 100 * kMillisecond;
/// The first roll call, so that its answers are there when the default warning is due; each later one after twice as
/// long a wait.
constexpr Ps kFirstQuestion = 800 * kMillisecond;
/// Answers come from threads that sleep: within a millisecond, on a busy machine some more.
constexpr Ps kAnswersTake = 150 * kMillisecond;
/// Rank 0 lets one question serve several askers; an answer may be older than the question by so much.
constexpr Ps kAnswerSlack = 20 * kMillisecond;

}  // namespace

bool Communicator::State::watch() noexcept {
  Operation& operation = operation_;
  if (abort_requested_.load(std::memory_order_acquire)) {
    const std::scoped_lock lock{abort_mutex_};
    return fail(CommErrorKind::kAborted, -1, "aborted: " + abort_reason_);
  }
  if (abort_is_asked()) return fail(CommErrorKind::kAborted, -1, "aborted by a request");
  if (group_->failed()) return fail_by_group();
  const Ps now = monotonic_now();
  if (operation.idle_since == 0) {
    start_watch(now);
    return true;
  }
  if (!operation.credit_told && now - operation.idle_since > kCreditPatience) {
    operation.credit_told = true;
    runner_->flush_credit(true);
  }
  if (now >= operation.look_at) look_around(now);
  if (now >= operation.ask_at) ask_all_ranks(now);
  if (now >= operation.judge_at) {
    operation.judge_at = kNever;
    // That ranks disagree is sure at once. Who is wrong may depend on one that has yet to come; for the next roll call,
    // and no longer.
    if (fail_by_testimony(Tell::kAccused, !std::exchange(operation.judged, true))) return false;
  }
  if (now >= operation.warn_at) warn_of_straggler(now);
  if (now >= operation.probe_at) {
    operation.probe_at = now + kProbeInterval;
    if (const auto waiting = waiting_for(); waiting.peer < config_.ranks) link_->probe(waiting.peer);
  }
  return now < operation.deadline || fail_by_timeout();
}

void Communicator::State::start_watch(Ps now) noexcept {
  Operation& operation = operation_;
  operation.idle_since = now;
  operation.judged = false;
  operation.probe_at = now + kProbeInterval;
  operation.look_at = now + kLookInterval;
  Ps question = kFirstQuestion;
  if (options_.straggler_warning > 0) {
    operation.warn_at = now + options_.straggler_warning;
    question = std::min(question, options_.straggler_warning / 5 * 4);
  }
  if (options_.operation_timeout > 0) {
    operation.deadline = now + options_.operation_timeout;
    question = std::min(question, options_.operation_timeout / 2);
  }
  operation.ask_at = now + question;
}

void Communicator::State::look_around(Ps now) noexcept {
  operation_.look_at = now + kLookInterval;
  link_->look_at_device();
  const auto waiting = waiting_for();
  if (waiting.peer < config_.ranks) {
    board_.set_subject(static_cast<int>(waiting.peer), runner_->last_heard(waiting.peer));
  } else {
    board_.set_subject(-1, {});
  }
}

void Communicator::State::ask_all_ranks(Ps now) noexcept {
  Operation& operation = operation_;
  asked_ = now;
  group_->roll_call(config_.communicator);
  operation.judge_at = std::min(now + kAnswersTake, operation.deadline);
  operation.ask_at = now + (now - operation.idle_since);
  // Once more in time for the end.
  const Ps last = operation.deadline - kAnswersTake;
  if (operation.deadline != kNever && now < last) operation.ask_at = std::min(operation.ask_at, last);
  if (operation.ask_at > operation.deadline) operation.ask_at = kNever;
}

void Communicator::State::hear_all_ranks(Ps bound) noexcept {
  const Ps start = monotonic_now();
  const auto silent = [&](const Testimony& one) { return one.presence == Testimony::Presence::kSilent; };
  asked_ = start;
  for (Ps now = start; now < start + bound && !group_->failed(); now = monotonic_now()) {
    // Anew now and then: an answer to somebody's earlier question may have crossed ours.
    if (now == start || now - start > kAnswerSlack) group_->roll_call(config_.communicator);
    nap(2 * kMillisecond);
    const std::vector<Testimony> all = testimonies();
    const auto disagreement = find_disagreement(all, static_cast<int>(config_.rank));
    const bool undecided = disagreement && !disagreement->settled;
    if (std::ranges::none_of(all, silent) && !undecided) return;
  }
}

void Communicator::State::hear_of(int rank, Ps bound) noexcept {
  const auto knows = [&](const Testimony& one) {
    return one.report && one.report->subject == rank && one.report->heard.any;
  };
  for (const Ps until = monotonic_now() + bound; monotonic_now() < until;) {
    group_->roll_call(config_.communicator);
    nap(25 * kMillisecond);
    if (std::ranges::any_of(testimonies(), knows)) return;
  }
}

std::vector<Testimony> Communicator::State::testimonies() const {
  const Ps now = monotonic_now();
  const std::vector<bootstrap::Report> reports = group_->reports(config_.communicator);
  std::vector<Testimony> all(config_.ranks);
  for (std::uint32_t rank = 0; rank < config_.ranks; ++rank) {
    Testimony& one = all[rank];
    one.name = group_->name(static_cast<int>(rank));
    if (rank == config_.rank) {
      one.presence = Testimony::Presence::kPresent;
      one.report = board_.read(now);
      continue;
    }
    const bootstrap::Report& report = reports[rank];
    if (report.received == 0) continue;
    one.report = report_from_bytes(report.body);
    if (one.report && one.report->life != life()) one.report.reset();
    one.age = now - report.received;
    if (report.received + kAnswerSlack < asked_) continue;
    one.presence = one.report ? Testimony::Presence::kPresent : Testimony::Presence::kAbsent;
  }
  return all;
}

std::string Communicator::State::last_act_of(int rank) const {
  return last_act(testimonies(), rank, static_cast<int>(config_.rank),
                  runner_->last_heard(static_cast<std::uint32_t>(rank)));
}

void Communicator::State::warn_of_straggler(Ps now) noexcept {
  operation_.warn_at = kNever;
  const auto waiting = waiting_for();
  std::string line = fmt::format("rank {}: {} has waited {}; {}", config_.rank, operation_name(),
                                 seconds_text(now - operation_.idle_since), waiting_text());
  if (waiting.peer < config_.ranks) {
    const int self = static_cast<int>(config_.rank);
    const int straggler = find_straggler(testimonies(), self, static_cast<int>(waiting.peer));
    if (straggler != static_cast<int>(waiting.peer))
      line += fmt::format(", in the end for {}", group_->name(straggler));
    line += ": " + last_act_of(straggler);
    observer_->straggles(straggler);
  }
  log_warn(line);
}

std::string Communicator::State::waiting_text() const {
  const auto waiting = waiting_for();
  if (waiting.peer >= config_.ranks) return "waiting for nobody";
  return fmt::format("waiting for {} {}", group_->name(static_cast<int>(waiting.peer)), waiting.what);
}

}  // namespace tensorwire::comm
