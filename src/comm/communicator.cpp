// What a communicator does beside its operations: it watches, fails, aborts, and tells. communicator_operations.cpp has
// the operations.
#include "comm/communicator.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/communicator_state.hpp"

namespace tensorwire::comm {

namespace {

/// When the link fails, the group often knows the real cause a moment later: a rank that died.
constexpr Ps kCauseGrace = 300 * kMillisecond;
/// Credit goes with the next write of an operation; so long without one is too long for who may need it.
constexpr Ps kCreditPatience = 1 * kMillisecond;
constexpr Ps kDrainBound = 1 * kSecond;
// A healthy wait is far shorter; with the retry limit of about half a second after it, a dead peer is told within 2 s.
constexpr Ps kProbeInterval = 1 * kSecond;

std::string seconds_text(Ps duration) { return fmt::format("{:.3g} s", static_cast<double>(duration) / kSecond); }

}  // namespace

bool Communicator::State::write(const WriteRequest& request) noexcept {
  if (request.token != collective::kNoToken) ++user_writes_;
  const Ps begun = trace_ != nullptr ? monotonic_now() : 0;
  const bool posted = post(request);
  if (trace_ != nullptr) trace_->on_write(request, begun);
  return posted;
}

bool Communicator::State::post(const WriteRequest& request) noexcept {
  if (!options_.fault_hook) return link_->post_write(request);
  WriteRequest changed = request;
  options_.fault_hook(changed);
  return link_->post_write(changed);
}

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
    operation.idle_since = now;
    if (options_.operation_timeout > 0) operation.deadline = now + options_.operation_timeout;
    operation.probe_at = now + kProbeInterval;
    if (options_.straggler_warning > 0) operation.warn_at = now + options_.straggler_warning;
    return true;
  }
  if (!operation.credit_told && now - operation.idle_since > kCreditPatience) {
    operation.credit_told = true;
    runner_->flush_credit(true);
  }
  if (now >= operation.warn_at) {
    operation.warn_at = kNever;
    log_warn(fmt::format("rank {}: {} has waited {}; {}", config_.rank, operation_name(),
                         seconds_text(now - operation.idle_since), waiting_text()));
    if (const auto waiting = waiting_for(); waiting.peer < config_.ranks) {
      observer_->straggles(static_cast<int>(waiting.peer));
    }
  }
  if (now >= operation.probe_at) {
    operation.probe_at = now + kProbeInterval;
    if (const auto waiting = waiting_for(); waiting.peer < config_.ranks) link_->probe(waiting.peer);
  }
  if (now < operation.deadline) return true;
  const auto waiting = waiting_for();
  const bool for_peer = waiting.peer < config_.ranks;
  return fail(CommErrorKind::kTimeout, for_peer ? static_cast<int>(waiting.peer) : -1,
              fmt::format("not over within {}; {}", seconds_text(options_.operation_timeout), waiting_text()));
}

std::string Communicator::State::waiting_text() const {
  const auto waiting = waiting_for();
  if (waiting.peer >= config_.ranks) return "waiting for nobody";
  return fmt::format("waiting for {} {}", group_->name(static_cast<int>(waiting.peer)), waiting.what);
}

bool Communicator::State::refuse(const std::string& why) noexcept {
  error_ = CommError{CommErrorKind::kArgument, -1,
                     fmt::format("{} on rank {}: {}", name_of(operation_.collective), config_.rank, why)};
  return false;
}

bool Communicator::State::fail(CommErrorKind kind, int peer, const std::string& why) noexcept {
  if (broken_) return false;
  broken_ = true;
  operation_.under_way = false;
  error_ = CommError{kind, peer, fmt::format("{} on rank {}: {}", operation_name(), config_.rank, why)};
  // The caller may free its buffers now. Where ranks disagree all of them are well and the writes end by themselves;
  // the queue pairs live on, because the others need our signatures to see the disagreement too.
  if (kind != CommErrorKind::kDisagreement || !drain_user_writes()) link_->abandon();
  // The others learn at once what they could only find out by waiting. A rank that died they see themselves; and where
  // ranks disagree, each names the culprit better than we could.
  if (kind != CommErrorKind::kPeerFailed && kind != CommErrorKind::kDisagreement) group_->abort(error_->line);
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
  const auto failed = group_->failed_rank();
  if (!failed) return fail(CommErrorKind::kPeerFailed, -1, "a rank failed");
  return fail(CommErrorKind::kPeerFailed, failed->rank,
              fmt::format("rank {} on {} failed: {}", failed->rank, failed->host, failed->reason));
}

bool Communicator::State::fail_by_link() noexcept {
  for (const Ps until = monotonic_now() + kCauseGrace; monotonic_now() < until && !group_->failed();) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
    nanosleep(&pause, nullptr);
  }
  if (group_->failed()) return fail_by_group();
  const LinkFailure* failure = link_->failure();
  if (failure == nullptr) return fail(CommErrorKind::kTransport, -1, "the link failed without a reason");
  return fail(CommErrorKind::kTransport, static_cast<int>(failure->peer), failure->line);
}

bool Communicator::State::fail_by_runner() noexcept {
  const collective::RunnerError& error = runner_->error();
  if (error.failure == collective::Failure::kTransport) return fail_by_link();
  const bool disagrees = error.failure == collective::Failure::kSignature;
  std::string why = to_string(error) + " (" + group_->host(static_cast<int>(error.peer)) + ")";
  if (disagrees) why += ". All ranks must make the same calls in the same order";
  return fail(disagrees ? CommErrorKind::kDisagreement : CommErrorKind::kInternal, static_cast<int>(error.peer), why);
}

bool Communicator::State::register_buffer(const void* address, std::size_t bytes) noexcept try {
  if (broken_) return false;
  static_cast<void>(link_->key_of(address, bytes));
  return true;
} catch (const std::exception& error) {
  return refuse(error.what());
}

bool Communicator::State::register_output(void* address, std::size_t bytes) noexcept try {
  if (broken_) return false;
  if (link_->has_windows()) static_cast<void>(link_->output_of(address, bytes));
  return true;
} catch (const std::exception& error) {
  return refuse(error.what());
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

CommStats Communicator::State::stats() const {
  CommStats stats;
  stats.operations = operation_sequence_ + exchanges_;
  stats.bytes = bytes_moved_;
  stats.runner = runner_->counters();
  stats.runner.bytes_copied += staging_.copied();
  stats.sizes = observer_->sizes();
  stats.device = observer_->device();
  stats.retransmissions = retransmissions(stats.device);
  for (std::uint32_t peer = 0; peer < config_.ranks; ++peer) {
    if (peer == config_.rank) continue;
    stats.peers.push_back(
        {static_cast<int>(peer), link_->describe(peer), link_->stats(peer), observer_->waited_for(peer)});
  }
  return stats;
}

// The public face.
Communicator::Communicator(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Communicator::~Communicator() = default;

bool Communicator::run(const Call& call) noexcept { return state_->begin(call) && state_->finish(); }
bool Communicator::run(std::span<const Transfer> transfers) noexcept {
  return state_->begin(transfers) && state_->finish();
}
bool Communicator::begin(const Call& call) noexcept { return state_->begin(call); }
bool Communicator::begin(std::span<const Transfer> transfers) noexcept { return state_->begin(transfers); }
Progress Communicator::advance() noexcept { return state_->advance(); }
bool Communicator::all_reduce(const void* in, void* out, std::size_t count, collective::DType dtype,
                              collective::Op op) noexcept {
  Call call;
  call.in = in;
  call.out = out;
  call.count = count;
  call.dtype = dtype;
  call.op = op;
  return run(call);
}
bool Communicator::register_buffer(const void* address, std::size_t bytes) noexcept {
  return state_->register_buffer(address, bytes);
}
bool Communicator::register_output(void* address, std::size_t bytes) noexcept {
  return state_->register_output(address, bytes);
}
std::optional<std::string> Communicator::problem_with(const Call& call) const { return state_->argument_problem(call); }
std::optional<std::string> Communicator::problem_with(const Transfer& transfer) const {
  return state_->argument_problem(transfer);
}
void Communicator::deregister_buffer(const void* address, std::size_t bytes) noexcept {
  state_->link().forget(address, bytes);
}
void Communicator::abort(const std::string& reason) noexcept { state_->abort(reason); }
const CommError* Communicator::error() const noexcept { return state_->error(); }
CommStats Communicator::stats() const { return state_->stats(); }
std::optional<std::uint64_t> Communicator::device_counter(std::string_view name) const {
  return state_->link().device_counter(name);
}
int Communicator::rank() const noexcept { return static_cast<int>(state_->config().rank); }
int Communicator::size() const noexcept { return static_cast<int>(state_->config().ranks); }
collective::Algorithm Communicator::algorithm_for(std::size_t count, collective::DType dtype) const noexcept {
  return collective::choose({state_->config().ranks, count, dtype, collective::Op::kSum}, state_->options().thresholds);
}
std::string Communicator::describe() const { return state_->describe(); }

}  // namespace tensorwire::comm
