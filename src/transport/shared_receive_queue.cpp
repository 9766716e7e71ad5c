#include "transport/shared_receive_queue.hpp"

#include <cerrno>

#include "transport/engine.hpp"

namespace tensorwire::transport {

int SharedReceiveQueue::arm(std::uint32_t limit) noexcept {
  if (limit > init_.max_wr) return EINVAL;
  limit_ = limit;
  check_limit();
  return 0;
}

void SharedReceiveQueue::pop() noexcept {
  ring_.pop();
  check_limit();
}

void SharedReceiveQueue::check_limit() noexcept {
  if (ring_.size() >= limit_) return;
  limit_ = 0;
  if (events_ != nullptr) events_->on_srq_event(AsyncEvent::kSrqLimitReached, *this);
}

}  // namespace tensorwire::transport
