#include "softhca/shard.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "softhca/gpu/staged_memory.hpp"
#include "softhca/srq.hpp"
#include "transport/queue_pair.hpp"

namespace tensorwire::softhca {

namespace {

/// Descriptors pulled in one transmit step: between steps arrivals are drained, so that ACKs are seen while a long
/// message leaves.
constexpr int kPullsPerStep = 4;
constexpr std::uint64_t kPullBytes = 256 * 1024;

/// An empty socket costs a system call, some 300 ns, an empty ring 10: while the same-host link brings something this
/// often, the sockets are left alone in so many passes in a row.
constexpr Ps kLocalBusy = 50 * kMicrosecond;
constexpr int kSocketSkips = 7;

/// A pass that took longer was interrupted: one pass is tens of microseconds of work.
constexpr Ps kLostCpu = 2 * kMillisecond;

/// Rounds that one call makes before it gives the caller its thread back.
constexpr int kMaxRounds = 8;

}  // namespace

Shard::Shard(const HostAddress& address, const transport::EngineConfig& config, FdWatcher& watcher)
    : address_(address), ack_timeout_floor_(config.ack_timeout_floor), watcher_(watcher), engine_(config, this) {
  noticed_.reserve(64);
  pending_events_.reserve(64);
}

void Shard::attach(std::unique_ptr<UdpLink> udp, std::unique_ptr<LocalLink> local) {
  udp_ = std::move(udp);
  local_ = std::move(local);
  bind_path(transport::kDefaultPath, *udp_);
}

void Shard::bind_path(transport::PathId path, Link& link) {
  if (link_of_path_.size() <= path) link_of_path_.resize(path + 1, nullptr);
  link_of_path_[path] = &link;
}

void Shard::use(StagedMemory& staged) noexcept {
  staged_ = &staged;
  udp_->use(staged);
  if (local_ != nullptr) local_->use(staged);
}

void Shard::ring(Qp& qp) noexcept {
  if (qp.rung.exchange(true)) return;
  Qp* head = doorbells_.load(std::memory_order_relaxed);
  do {
    qp.next_rung = head;
  } while (!doorbells_.compare_exchange_weak(head, &qp));
}

void Shard::take_doorbells(Ps now) noexcept {
  Qp* qp = doorbells_.exchange(nullptr);
  if (qp == nullptr) return;
  while (qp != nullptr) {
    Qp* const next = qp->next_rung;
    qp->rung.store(false);  // before the engine looks: what is posted from here on rings again
    engine_.doorbell(*qp->engine_qp, now);
    qp = next;
  }
}

Shard::Result Shard::progress(Depth depth) noexcept {
  Result result;
  for (int round = 0; round < kMaxRounds; ++round) {
    if (!lock_.try_lock()) return result;
    result.left = pass(depth, result);
    const Notices notices = collect();
    lock_.unlock();
    deliver(notices);
    result.passed = true;
    result.left = result.left || notices.count == notices.queues.size();
    if (doorbells_.load() == nullptr && !result.left) return result;
    depth = result.left ? Depth::kFull : depth;
  }
  result.left = true;
  return result;
}

/// One pass, lock held. Returns true when it stopped with work left.
bool Shard::pass(Depth depth, Result& result) noexcept {
  const Ps start = monotonic_now();
  bool drained = false;
  bool more = false;
  std::size_t packets = 0;
  if (depth != Depth::kTransmit) {
    if (!skip_sockets(depth, start)) {
      packets = udp_->receive(start, more);
      drained = !more;
    }
    if (local_ != nullptr) {
      bool more_local = false;
      const std::size_t local_packets = local_->receive(start, more_local);
      if (local_packets != 0) local_busy_until_ = start + kLocalBusy;
      packets += local_packets;
      drained = drained && !more_local;
      more = more || more_local;
    }
    if (staged_ != nullptr) staged_->received(start);
  }
  const bool rung = doorbells_.load(std::memory_order_relaxed) != nullptr;
  result.worked = result.worked || packets != 0 || rung;
  take_doorbells(start);
  if (drained) {
    if (engine_.next_deadline() <= start && timers_held_until_ <= start) engine_.on_timer(start);
    if (udp_->next_deadline() <= start) udp_->on_timer(start);
    if (local_ != nullptr && local_->next_deadline() <= start) local_->on_timer(start);
    if (staged_ != nullptr && staged_->next_deadline() <= start) staged_->on_timer(start);
  }
  const bool unsent = !hold_back(depth, packets != 0 && !rung) && transmit(start);

  // Deadlines count from `start`. Whoever lost the CPU in between sent later than the engine believes, so its timers
  // are held for as long as the shortest of them lasts.
  result.end = monotonic_now();
  if (result.end - start > kLostCpu) timers_held_until_ = result.end + ack_timeout_floor_;

  Ps deadline = std::min(std::max(engine_.next_deadline(), timers_held_until_), udp_->next_deadline());
  if (local_ != nullptr) deadline = std::min(deadline, local_->next_deadline());
  if (staged_ != nullptr) deadline = std::min(deadline, staged_->next_deadline());
  deadline_.store(deadline);
  return more || unsent;
}

bool Shard::skip_sockets(Depth depth, Ps now) noexcept {
  if (depth == Depth::kPoll && now < local_busy_until_ && sockets_skipped_ < kSocketSkips) {
    ++sockets_skipped_;
    return true;
  }
  sockets_skipped_ = 0;
  return false;
}

/// What an application finds in this poll it wants to answer, and its answer should not wait for the acknowledgement of
/// the question, which is a system call and wakes the peer: that leaves with the next pass. When the application does
/// not come back, the engine thread, which stands by, makes it.
bool Shard::hold_back(Depth depth, bool received) noexcept {
  const bool hold = depth == Depth::kPoll && received && !holds_back_.load(std::memory_order_relaxed);
  holds_back_.store(hold && engine_.has_tx(), std::memory_order_relaxed);
  return hold;
}

/// Pulls from the engine and sends. Returns true when there was more to send than one step takes.
bool Shard::transmit(Ps now) noexcept {
  for (int pull = 0; pull < kPullsPerStep; ++pull) {
    if (!udp_->can_send()) {
      udp_->flush(now);
      if (!udp_->can_send()) return false;  // its deadline brings us back
    }
    const std::size_t count = engine_.has_tx() ? engine_.next_tx(now, kPullBytes, descs_) : 0;
    if (count == 0) return false;
    if (staged_ != nullptr) staged_->before_send(std::span{descs_}.first(count));
    link_of_path_[descs_[0].path]->transmit(std::span{descs_}.first(count), now);
  }
  return engine_.has_tx();
}

void Shard::adopt(UniqueFd connection) {
  if (local_ != nullptr) local_->adopt(std::move(connection));
}

bool Shard::prepare_sleep() noexcept {
  if (local_ == nullptr) return true;
  if (!lock_.try_lock()) return false;
  const bool quiet = local_->prepare_sleep();
  if (!quiet) local_->end_sleep();
  lock_.unlock();
  return quiet && doorbells_.load() == nullptr;
}

void Shard::end_sleep() noexcept {
  if (local_ == nullptr) return;
  locked([&] { local_->end_sleep(); });
}

void Shard::note_completion(CqImpl& cq) noexcept {
  if (cq.noticed) return;
  cq.noticed = true;
  noticed_.push_back(&cq);
}

void Shard::forget(CqImpl& cq) noexcept {
  std::erase(noticed_, &cq);
  forget_events(&cq);
}

void Shard::forget_events(const void* object) noexcept {
  std::erase_if(pending_events_, [&](const PendingEvent& pending) { return pending.object == object; });
}

Shard::Notices Shard::collect() noexcept {
  Notices notices;
  while (!noticed_.empty() && notices.count < notices.queues.size()) {
    CqImpl* const cq = noticed_.back();
    noticed_.pop_back();
    cq->noticed = false;
    cq->begin_callback();
    notices.queues[notices.count++] = cq;
  }
  if (!pending_events_.empty()) {
    events_in_flight_.fetch_add(1);
    notices.events.swap(pending_events_);
  }
  return notices;
}

void Shard::deliver(const Notices& notices) noexcept {
  for (std::size_t i = 0; i < notices.count; ++i) notices.queues[i]->run_callback();
  if (notices.events.empty()) return;
  call_back(notices.events);
  events_in_flight_.fetch_sub(1);
}

void Shard::on_async_event(transport::AsyncEvent event, transport::QueuePair& qp) noexcept {
  auto* const ours = static_cast<Qp*>(qp.init().user);
  note_event({.event = static_cast<HcaEvent>(event), .object = ours, .user = ours->user});
}

void Shard::on_srq_event(transport::AsyncEvent event, transport::SharedReceiveQueue& srq) noexcept {
  auto* const ours = static_cast<SrqImpl*>(srq.init().user);
  note_event({.event = static_cast<HcaEvent>(event), .object = ours, .user = ours->user()});
}

/// The mutex is held while callbacks run: remove_event_callback() returns when its callback runs no more.
void Shard::call_back(std::span<const PendingEvent> events) noexcept {
  const std::lock_guard guard{events_mutex_};
  for (const PendingEvent& pending : events) {
    for (const EventCallback& callback : event_callbacks_)
      callback.function(callback.user, pending.event, pending.user);
  }
}

/// Not in flight in the sense of wait_for_events(): it names no object that could go meanwhile.
void Shard::tell(HcaEvent event) noexcept {
  const PendingEvent pending{.event = event, .object = nullptr, .user = nullptr};
  call_back({&pending, 1});
}

void Shard::wait_for_events() noexcept {
  while (events_in_flight_.load() != 0) sched_yield();
}

void Shard::add_event_callback(EventCallback callback) {
  const std::lock_guard guard{events_mutex_};
  event_callbacks_.push_back(callback);
}

void Shard::remove_event_callback(void* user) noexcept {
  const std::lock_guard guard{events_mutex_};
  std::erase_if(event_callbacks_, [&](const EventCallback& callback) { return callback.user == user; });
}

void Shard::close_sockets() noexcept {
  udp_->close_sockets();
  if (local_ != nullptr) local_->close_sockets();
}

}  // namespace tensorwire::softhca
