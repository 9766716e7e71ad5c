#include "transport/completion_queue.hpp"

#include <algorithm>
#include <bit>

namespace tensorwire::transport {

CompletionQueue::CompletionQueue(std::uint32_t capacity, CompletionListener* listener)
    : capacity_(std::max(capacity, 1U)),
      mask_(std::bit_ceil(capacity_) - 1),
      ring_(std::size_t{mask_} + 1),
      listener_(listener) {}

std::size_t CompletionQueue::poll(std::span<Completion> out) noexcept {
  const std::uint32_t head = head_.load(std::memory_order_relaxed);
  const std::uint32_t ready = tail_.load(std::memory_order_seq_cst) - head;
  const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(ready, out.size()));
  for (std::uint32_t i = 0; i < count; ++i) out[i] = ring_[(head + i) & mask_];
  if (count != 0) head_.store(head + count, std::memory_order_release);
  return count;
}

// Arming races with push(). Both sides write first (armed_ here, tail_ there), then read the other's word, all
// sequentially consistent: either the producer sees the queue armed, or the poll that every user makes after arming
// sees the completion. Never neither.
void CompletionQueue::arm(bool solicited_only) noexcept {
  if (!solicited_only) {
    armed_.store(kArmedAny, std::memory_order_seq_cst);
    return;
  }
  std::uint8_t expected = kNotArmed;  // an arming for any completion is the stronger one and stays
  armed_.compare_exchange_strong(expected, kArmedSolicited, std::memory_order_seq_cst);
}

std::size_t CompletionQueue::size() const noexcept {
  return tail_.load(std::memory_order_acquire) - head_.load(std::memory_order_acquire);
}

bool CompletionQueue::push(const Completion& completion, bool solicited) noexcept {
  const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
  if (tail - head_.load(std::memory_order_acquire) >= capacity_) {
    const bool first = !overrun_.exchange(true, std::memory_order_relaxed);
    if (first && listener_ != nullptr) listener_->on_overrun(*this);
    return false;
  }
  ring_[tail & mask_] = completion;
  tail_.store(tail + 1, std::memory_order_seq_cst);

  const std::uint8_t armed = armed_.load(std::memory_order_seq_cst);
  if (armed == kNotArmed) return true;
  if (armed == kArmedSolicited && !solicited && completion.status == WcStatus::kSuccess) return true;
  armed_.store(kNotArmed, std::memory_order_seq_cst);
  if (listener_ != nullptr) listener_->on_completion_event(*this);
  return true;
}

void CompletionQueue::purge(std::uint32_t qp_num) noexcept {
  const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
  std::uint32_t kept = head_.load(std::memory_order_relaxed);
  for (std::uint32_t i = kept; i != tail; ++i) {
    if (ring_[i & mask_].qp_num == qp_num) continue;
    if (kept != i) ring_[kept & mask_] = ring_[i & mask_];
    ++kept;
  }
  tail_.store(kept, std::memory_order_release);
}

}  // namespace tensorwire::transport
