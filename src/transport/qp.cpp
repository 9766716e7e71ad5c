#include "transport/qp.hpp"

#include "transport/attributes.hpp"

namespace tensorwire::transport {

void Qp::apply(QpState next, const QpAttr& attr, std::uint32_t mask, PathId path) {
  if (next == QpState::kReset) return reset();
  if (next == QpState::kErr) return enter_error();

  apply_attributes(attributes_, attr, mask);
  const QpState previous = state();
  if (next == QpState::kRtr) {
    path_ = path;
    AddressVector& av = attributes_.av;
    if (av.udp_source_port == 0) av.udp_source_port = entropy_port(av.flow_label, init_.qpn, attributes_.dest_qpn);
    responder.start();
  }
  if (next == QpState::kRts && previous != QpState::kRts) requester.start();
  attributes_.state = next;
  state_.store(next, std::memory_order_release);
}

void Qp::enter_error() noexcept {
  attributes_.state = QpState::kErr;
  state_.store(QpState::kErr, std::memory_order_release);
  flush();
}

void Qp::flush() noexcept {
  requester.flush();
  responder.flush();
}

void Qp::reset() noexcept {
  state_.store(QpState::kReset, std::memory_order_release);
  requester.stop();
  responder.stop();
  core.scheduler.remove(*this);
  send_queue_.clear();
  receive_queue_.clear();
  attributes_ = {};
  path_ = kDefaultPath;
}

void Qp::raise(AsyncEvent event) noexcept {
  if (core.events != nullptr) core.events->on_async_event(event, *this);
}

}  // namespace tensorwire::transport
