#include "transport/receive_queue.hpp"

#include <algorithm>

namespace tensorwire::transport {

void ReceiveQueue::hold() noexcept {
  if (shared_ == nullptr || holding_ || shared_->ring().empty()) return;
  held_ = shared_->ring().front();
  std::ranges::copy(shared_->ring().front_sges(), held_sges_.begin());
  holding_ = true;
  shared_->pop();
}

void ReceiveQueue::pop() noexcept {
  if (shared_ == nullptr) {
    ring_.pop();
  } else if (holding_) {
    holding_ = false;
  } else {
    shared_->pop();
  }
}

void ReceiveQueue::clear() noexcept {
  holding_ = false;
  ring_.clear();
}

}  // namespace tensorwire::transport
