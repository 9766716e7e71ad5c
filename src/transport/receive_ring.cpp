#include "transport/receive_ring.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>

namespace tensorwire::transport {

ReceiveRing::ReceiveRing(std::uint32_t max_wr, std::uint32_t max_sge, bool late)
    : capacity_(max_wr), mask_(std::bit_ceil(std::max(max_wr, 1U)) - 1), max_sge_(max_sge) {
  if (!late) allocate();
}

void ReceiveRing::allocate() {
  entries_.resize(std::size_t{mask_} + 1);
  sges_.resize((std::size_t{mask_} + 1) * max_sge_);
}

std::span<const Sge> ReceiveRing::front_sges() const noexcept {
  return {sges_.data() + std::size_t{head() & mask_} * max_sge_, front().sge_count};
}

int ReceiveRing::post(const RecvWr& wr) noexcept {
  if (entries_.empty()) [[unlikely]]
    allocate();
  if (wr.sges.size() > max_sge_) return EINVAL;
  const std::uint32_t index = posted_.load(std::memory_order_relaxed);
  if (index - freed_.load(std::memory_order_acquire) >= capacity_) return ENOMEM;

  std::uint64_t length = 0;
  for (const Sge& sge : wr.sges) length += sge.length;
  entries_[index & mask_] = {wr.wr_id, length, static_cast<std::uint8_t>(wr.sges.size())};
  std::copy(wr.sges.begin(), wr.sges.end(), sges_.data() + std::size_t{index & mask_} * max_sge_);
  posted_.store(index + 1, std::memory_order_release);
  return 0;
}

}  // namespace tensorwire::transport
