#include "transport/engine.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "transport/attributes.hpp"
#include "transport/core.hpp"
#include "transport/key_map.hpp"
#include "transport/qp.hpp"

namespace tensorwire::transport {

/// The engine's state: what the queue pairs share, the queue pairs by QPN, and which protection domains live.
struct Engine::Impl : Core {
  using Core::Core;

  KeyMap<Qp> queue_pairs;
  std::vector<Qp*> in_creation_order;
  std::vector<std::unique_ptr<SharedReceiveQueue>> shared_queues;
  std::vector<bool> domains{false};  ///< by PdId; 0 is never given out

  [[nodiscard]] bool has_pd(PdId pd) const noexcept { return pd < domains.size() && domains[pd]; }
  /// Last in every call that may complete something.
  void settle() noexcept {
    while (overrun) fail_overrun();
  }
  void fail_overrun() noexcept;
};

/// Who lost a completion can no longer tell what has happened: every queue pair of a completion queue that overran goes
/// to ERR (IB specification vol. 1, 11.6.3).
void Engine::Impl::fail_overrun() noexcept {
  overrun = false;
  for (Qp* qp : in_creation_order) {
    if (!qp->init().send_cq->overrun() && !qp->init().recv_cq->overrun()) continue;
    if (qp->state() == QpState::kReset || qp->state() == QpState::kErr) continue;
    qp->enter_error();
    qp->raise(AsyncEvent::kQpFatal);
  }
}

namespace {

constexpr std::uint32_t kMaxWorkRequests = 16384;

void require(bool good, const char* why, const char* remedy, const char* what = "create a queue pair") {
  if (!good) throw Error(what, why, remedy);
}

void check_limits(const QpInit& init) {
  const QpCaps& caps = init.caps;
  require(init.type == QpType::kRc || init.type == QpType::kUc || init.type == QpType::kUd,
          "only the RC, UC and UD transports are offered", "Ask for an RC, a UC or a UD queue pair.");
  require(init.qpn != 0 && init.qpn <= wire::kQpnMask, "a QPN has 24 bits and is not 0", "Choose another QPN.");
  require(init.send_cq != nullptr && init.recv_cq != nullptr, "it needs a send and a receive completion queue",
          "Create the completion queues first.");
  require(caps.max_send_wr <= kMaxWorkRequests && caps.max_recv_wr <= kMaxWorkRequests,
          "more than 16384 work requests asked for", "Ask for a shorter queue.");
  require(caps.max_send_sge <= kMaxSge && caps.max_recv_sge <= kMaxSge,
          "more than 16 scatter/gather elements asked for", "Ask for fewer elements.");
  require(caps.max_inline_data <= kMaxInlineBytes, "more than 512 bytes of inline data asked for",
          "Ask for fewer inline bytes.");
}

/// P_Keys match when their low 15 bits do and one side at least is a full member; ours is 0xffff, a full member.
bool pkey_matches(std::uint16_t pkey) noexcept { return (pkey & 0x7fffU) == (wire::kDefaultPkey & 0x7fffU); }

RxPlan plan_of(const RxVerdict& verdict) noexcept { return static_cast<RxPlan>(verdict.plan); }

}  // namespace

std::string_view name(DropReason reason) noexcept {
  switch (reason) {
    case DropReason::kNone:
      return "none";
    case DropReason::kUnknownQp:
      return "unknown queue pair";
    case DropReason::kWrongState:
      return "queue pair not ready for it";
    case DropReason::kWrongSource:
      return "not from the peer's address";
    case DropReason::kWrongPkey:
      return "partition key";
    case DropReason::kWrongOpcode:
      return "opcode of another service";
    case DropReason::kOutOfSequence:
      return "out of sequence";
    case DropReason::kStale:
      return "stale";
    case DropReason::kBadLength:
      return "bad length";
    case DropReason::kWrongQkey:
      return "queue key";
    case DropReason::kNoReceive:
      return "no receive buffer for it";
  }
  return "?";
}

Engine::Engine(const EngineConfig& config, EventListener* events) : impl_(std::make_unique<Impl>(config, events)) {
  create_path({});
}

Engine::~Engine() = default;

PdId Engine::create_pd() {
  impl_->domains.push_back(true);
  return static_cast<PdId>(impl_->domains.size() - 1);
}

int Engine::destroy_pd(PdId pd) {
  if (!impl_->has_pd(pd)) return EINVAL;
  const bool used = impl_->memory.count(pd) != 0 ||
                    std::ranges::any_of(impl_->in_creation_order, [pd](const Qp* qp) { return qp->init().pd == pd; }) ||
                    std::ranges::any_of(impl_->shared_queues, [pd](const auto& srq) { return srq->init().pd == pd; });
  if (used) return EBUSY;
  impl_->domains[pd] = false;
  return 0;
}

MemoryTable& Engine::memory() noexcept { return impl_->memory; }

SharedReceiveQueue& Engine::create_srq(const SrqInit& init) {
  constexpr const char* kWhat = "create a shared receive queue";
  require(impl_->has_pd(init.pd), "no such protection domain", "Create the protection domain first.", kWhat);
  require(init.max_wr <= kMaxWorkRequests, "more than 16384 work requests asked for", "Ask for a shorter queue.",
          kWhat);
  require(init.max_sge <= kMaxSge, "more than 16 scatter/gather elements asked for", "Ask for fewer elements.", kWhat);
  return *impl_->shared_queues.emplace_back(std::make_unique<SharedReceiveQueue>(init, impl_->events));
}

int Engine::destroy_srq(SharedReceiveQueue& srq) {
  if (std::ranges::any_of(impl_->in_creation_order, [&](const Qp* qp) { return qp->init().srq == &srq; })) return EBUSY;
  std::erase_if(impl_->shared_queues, [&](const auto& owned) { return owned.get() == &srq; });
  return 0;
}

QueuePair& Engine::create_qp(const QpInit& init) {
  check_limits(init);
  require(impl_->has_pd(init.pd), "no such protection domain", "Create the protection domain first.");
  require(impl_->queue_pairs.find(init.qpn) == nullptr, "its QPN is in use", "Choose another QPN.");
  impl_->timers.reserve(impl_->queue_pairs.size() + 1);
  impl_->pacing.reserve(impl_->queue_pairs.size() + 1);
  impl_->notices.reserve(impl_->queue_pairs.size() + 1);
  Qp& qp = impl_->queue_pairs.insert(init.qpn, std::make_unique<Qp>(init, *impl_));
  impl_->in_creation_order.push_back(&qp);
  return qp;
}

void Engine::destroy_qp(QueuePair& queue_pair) {
  Qp& qp = static_cast<Qp&>(queue_pair);
  impl_->withdraw(qp.qpn());
  qp.requester.stop();
  qp.responder.stop();
  impl_->scheduler.remove(qp);
  impl_->memory.unbind_all(qp.qpn());
  qp.init().send_cq->purge(qp.qpn());
  qp.init().recv_cq->purge(qp.qpn());
  std::erase(impl_->in_creation_order, &qp);
  impl_->queue_pairs.erase(qp.qpn());
}

QueuePair* Engine::find_qp(std::uint32_t qpn) noexcept { return impl_->queue_pairs.find(qpn); }

int Engine::modify_qp(QueuePair& queue_pair, const QpAttr& attr, std::uint32_t mask, Ps, PathId path) {
  Qp& qp = static_cast<Qp&>(queue_pair);
  QpState next = qp.state();
  if (const int error = check_modify(qp.state(), attr, mask, next, qp.init().type); error != 0) return error;
  if ((mask & kAttrAv) != 0 && !impl_->scheduler.has_path(path)) return EINVAL;
  const bool leaves = next == QpState::kErr || next == QpState::kReset;
  if (qp.state() == QpState::kSqd && qp.attributes().sq_draining && !leaves) return EINVAL;
  qp.apply(next, attr, mask, path);
  impl_->settle();
  return 0;
}

PathId Engine::create_path(const PathConfig& config) { return impl_->scheduler.add_path(config); }

void Engine::set_path_window(PathId path, std::uint64_t window_bytes) {
  impl_->scheduler.set_window(path, window_bytes);
}

void Engine::count_withdrawals(Withdrawals* counts) noexcept { impl_->withdrawals = counts; }

void Engine::set_path_blocked(PathId path, bool blocked) noexcept { impl_->scheduler.set_blocked(path, blocked); }

void Engine::set_cnp_path(PathId path) noexcept { impl_->scheduler.set_cnp_path(path); }

void Engine::doorbell(QueuePair& queue_pair, Ps) noexcept {
  Qp& qp = static_cast<Qp&>(queue_pair);
  if (qp.state() == QpState::kErr) {
    qp.flush();
  } else {
    qp.schedule_sends();
  }
  impl_->settle();
}

bool Engine::has_tx() const noexcept { return impl_->scheduler.has_tx(); }

std::size_t Engine::next_tx(Ps now, std::uint64_t budget_bytes, std::span<TxDesc> out) noexcept {
  const std::size_t count = impl_->scheduler.fill(now, budget_bytes, out);
  impl_->settle();
  return count;
}

void Engine::tx_failed(const TxDesc& desc, Ps) noexcept {
  Qp* const qp = impl_->queue_pairs.find(desc.src_qpn);
  if (qp == nullptr) return;
  if (qp->unanswered) {
    qp->unanswered->source_lost(desc.headers.psn);
  } else if (wire::traits(desc.headers.opcode).response) {
    qp->responder.source_lost(desc.headers.psn);
  } else {
    qp->requester.source_lost(desc.headers.psn);
  }
  impl_->settle();
}

void Engine::tx_refused(std::uint32_t qpn, Ps) noexcept {
  Qp* const qp = impl_->queue_pairs.find(qpn);
  if (qp == nullptr || !can_send(qp->state())) return;
  if (qp->unanswered) {
    qp->unanswered->refused();
  } else {
    qp->requester.refused();
  }
  impl_->settle();
}

RxVerdict Engine::classify(const wire::Headers& headers, std::uint32_t payload_bytes, const PacketSource& source,
                           Ps) const noexcept {
  RxVerdict verdict;
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  Qp* qp = impl_->queue_pairs.find(headers.dest_qpn);
  const bool receives = qp != nullptr && (traits.response ? can_send(qp->state()) : can_receive(qp->state()));
  if (qp == nullptr) {
    verdict.drop = DropReason::kUnknownQp;
  } else if (qp->ud) {
    verdict.drop = DropReason::kWrongPkey;
    if (pkey_matches(headers.pkey)) qp->ud->classify(headers, payload_bytes, source, verdict);
  } else if (!receives) {
    verdict.drop = DropReason::kWrongState;
  } else if (source.address != qp->attributes().av.remote) {
    verdict.drop = DropReason::kWrongSource;
  } else if (!pkey_matches(headers.pkey)) {
    verdict.drop = DropReason::kWrongPkey;
  } else if (!traits.known || !qp->serves(headers.opcode, source)) {
    verdict.drop = DropReason::kWrongOpcode;
  } else if (payload_bytes > source.mtu) {
    verdict.drop = DropReason::kBadLength;
  } else if (headers.opcode == wire::Opcode::kCnp) {
    verdict.qp = qp;
    verdict.action = RxAction::kControl;
    verdict.plan = static_cast<std::uint8_t>(RxPlan::kCongestion);
  } else {
    verdict.qp = qp;
    if (qp->unanswered) {
      qp->responder.classify_unreliable(headers, payload_bytes, verdict);
    } else if (traits.response) {
      qp->requester.classify(headers, payload_bytes, verdict);
    } else {
      qp->responder.classify(headers, payload_bytes, source.mtu, verdict);
    }
  }
  verdict.congested = source.congestion_experienced && qp != nullptr && qp->congestion != nullptr;
  if (verdict.drop != DropReason::kNone) {
    ++impl_->counters.rx_dropped;
    if (verdict.drop == DropReason::kOutOfSequence) ++impl_->counters.out_of_sequence;
  }
  return verdict;
}

void Engine::commit(const RxVerdict& verdict, const wire::Headers& headers, std::uint32_t payload_bytes,
                    Ps now) noexcept {
  if (verdict.qp == nullptr) return;
  Qp& qp = static_cast<Qp&>(*verdict.qp);
  if (verdict.congested) qp.on_marked(now);
  const RxPlan plan = plan_of(verdict);
  if (plan == RxPlan::kCongestion) return qp.on_cnp(now);
  if (is_answer(plan)) {
    ++impl_->counters.rx_packets;
    qp.requester.commit(plan, headers, payload_bytes, now);
  } else if (!qp.unanswered) {
    qp.responder.commit(plan, headers, payload_bytes);
  } else if (qp.ud) {
    qp.ud->commit(plan, headers, payload_bytes);
  } else {
    qp.responder.commit_unreliable(plan, headers, payload_bytes);
  }
  impl_->settle();
}

void Engine::reject(const RxVerdict& verdict, const wire::Headers& headers, Ps now) noexcept {
  if (verdict.qp == nullptr) return;
  Qp& qp = static_cast<Qp&>(*verdict.qp);
  if (qp.ud) {
    qp.ud->reject(headers);
  } else if (qp.unanswered) {
    qp.responder.reject_unreliable(headers);
  } else if (is_answer(plan_of(verdict))) {
    qp.requester.commit(RxPlan::kResponseUnplaced, headers, 0, now);
  } else {
    qp.responder.reject(headers);
  }
  impl_->settle();
}

void Engine::hold(const RxVerdict& verdict, const wire::Headers& headers) noexcept {
  static_cast<Qp&>(*verdict.qp).responder.hold(headers);
}

Ps Engine::next_deadline() const noexcept {
  const Ps congestion = std::min(impl_->pacing.next_deadline(), impl_->notices.next_deadline());
  return std::min(impl_->timers.next_deadline(), congestion);
}

void Engine::on_timer(Ps now) noexcept {
  while (Qp* qp = impl_->timers.pop_due(now)) qp->requester.on_timer(now);
  while (Qp* qp = impl_->notices.pop_due(now)) qp->on_notice_deadline(now);
  while (Qp* qp = impl_->pacing.pop_due(now)) {
    qp->congestion->waiting = false;
    qp->schedule_sends();
    qp->responder.schedule();
  }
  impl_->settle();
}

const EngineCounters& Engine::counters() const noexcept { return impl_->counters; }

}  // namespace tensorwire::transport
