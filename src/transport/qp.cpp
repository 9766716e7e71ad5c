#include "transport/qp.hpp"

#include "transport/attributes.hpp"

namespace tensorwire::transport {

void Qp::apply(QpState next, const QpAttr& attr, std::uint32_t mask, PathId path) {
  if (next == QpState::kReset) return reset();
  if (next == QpState::kErr) return enter_error();

  apply_attributes(attributes_, attr, mask);
  const QpState previous = state();
  if (next == QpState::kRtr && !ud) {
    take_path(path);
    life_ = ++core.lives;
    responder.start();
  }
  if (next == QpState::kRts && previous == QpState::kRtr) {
    if (unanswered) {
      unanswered->start();
    } else {
      requester.start();
    }
  }
  attributes_.state = next;
  state_.store(next, std::memory_order_release);
  if (next == QpState::kSqd && previous == QpState::kRts) return begin_drain(attr, mask);
  if (next == QpState::kSqd) return change_drained(mask, path);
  if (previous == QpState::kSqd) schedule_sends();
}

void Qp::take_path(PathId path) noexcept {
  path_ = path;
  AddressVector& av = attributes_.av;
  if (av.udp_source_port == 0) av.udp_source_port = entropy_port(av.flow_label, init_.qpn, attributes_.dest_qpn);
  if (congestion != nullptr) congestion->start(core.config.dcqcn, av);
}

void Qp::begin_drain(const QpAttr& attr, std::uint32_t mask) noexcept {
  attributes_.en_sqd_async_notify = (mask & kAttrEnSqdAsync) != 0 && attr.en_sqd_async_notify;
  attributes_.sq_draining = true;
  schedule_sends();
  settle_drain();
}

void Qp::settle_drain() noexcept {
  if (state() != QpState::kSqd || !attributes_.sq_draining) return;
  if (!(unanswered ? unanswered->drained() : requester.drained())) return;
  attributes_.sq_draining = false;
  if (attributes_.en_sqd_async_notify) raise(AsyncEvent::kSqDrained);
}

/// Nothing is in flight, so the path may change under the requester; what the responder owes leaves by the new one.
void Qp::change_drained(std::uint32_t mask, PathId path) noexcept {
  if ((mask & kAttrAv) != 0) {
    stop_pacing();
    stop_notices();
    core.scheduler.remove(*this);
    take_path(path);
  }
  if (unanswered) return;
  requester.tune();
  if ((mask & kAttrMaxDestRdAtomic) != 0) responder.resize();
  responder.schedule();
}

void Qp::enter_error() noexcept {
  const bool was_in_error = state() == QpState::kErr;
  if (!was_in_error) core.withdraw(qpn());
  attributes_.state = QpState::kErr;
  state_.store(QpState::kErr, std::memory_order_release);
  flush();
  if (init_.srq != nullptr && !was_in_error) raise(AsyncEvent::kLastWqeReached);
}

void Qp::enter_send_error() noexcept {
  attributes_.state = QpState::kSqe;
  state_.store(QpState::kSqe, std::memory_order_release);
  unanswered->flush();
}

void Qp::flush() noexcept {
  if (unanswered) {
    unanswered->flush();
  } else {
    requester.flush();
  }
  responder.flush();
}

void Qp::reset() noexcept {
  core.withdraw(qpn());
  state_.store(QpState::kReset, std::memory_order_release);
  requester.stop();
  responder.stop();
  core.scheduler.remove(*this);
  send_queue_.clear();
  if (unanswered) unanswered->stop();  // behind what was forgotten: an error before RTS has nothing to complete
  receive_queue_.clear();
  attributes_ = {};
  path_ = kDefaultPath;
}

void Qp::pace(std::uint32_t payload_bytes, Ps now) noexcept {
  const Ps next = congestion->on_sent(core.config.dcqcn, payload_bytes, now);
  if (next <= now) return;
  congestion->waiting = true;
  core.pacing.set(*this, next);
}

void Qp::stop_pacing() noexcept {
  if (congestion == nullptr) return;
  congestion->waiting = false;
  core.pacing.cancel(*this);
}

void Qp::stop_notices() noexcept {
  if (congestion != nullptr) core.notices.cancel(*this);
}

void Qp::on_marked(Ps now) noexcept {
  ++core.counters.np_ecn_marked_roce_packets;
  switch (congestion->on_marked(core.config.dcqcn, now)) {
    case CnpPacer::Verdict::kNow:
      core.notices.cancel(*this);
      return core.scheduler.cnp_ready(*this);
    case CnpPacer::Verdict::kLater:
      return core.notices.set(*this, congestion->notice_deadline());
    case CnpPacer::Verdict::kNothing:
      return;
  }
}

void Qp::on_notice_deadline(Ps now) noexcept {
  if (congestion->on_notice_deadline(core.config.dcqcn, now)) core.scheduler.cnp_ready(*this);
}

void Qp::build_cnp(TxDesc& out) noexcept {
  congestion->build_cnp(attributes().dest_qpn, qpn(), path(), out);
  ++core.counters.np_cnp_sent;
}

void Qp::on_cnp(Ps now) noexcept {
  if (congestion == nullptr) {
    ++core.counters.rp_cnp_ignored;
    return;
  }
  ++core.counters.rp_cnp_handled;
  congestion->on_cnp(core.config.dcqcn, now);
}

void Qp::raise(AsyncEvent event) noexcept {
  if (core.events != nullptr) core.events->on_async_event(event, *this);
}

}  // namespace tensorwire::transport
