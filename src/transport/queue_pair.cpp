#include "transport/queue_pair.hpp"

#include <cerrno>

namespace tensorwire::transport {

QueuePair::QueuePair(const QpInit& init)
    : init_(init), send_queue_(init.caps, init.type), receive_queue_(init.caps, init.srq) {}

int QueuePair::post_send(const SendWr& wr) noexcept {
  switch (state()) {
    case QpState::kReset:
    case QpState::kInit:
    case QpState::kRtr:
      return EINVAL;
    default:
      return send_queue_.post(wr);
  }
}

int QueuePair::post_recv(const RecvWr& wr) noexcept {
  return state() == QpState::kReset ? EINVAL : receive_queue_.post(wr);
}

}  // namespace tensorwire::transport
