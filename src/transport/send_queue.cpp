#include "transport/send_queue.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace tensorwire::transport {

namespace {

/// 0, or why a UD queue pair does not take it. A message longer than the packet it must fit into is refused here, where
/// the program that made it learns of it.
int check_datagram(const SendWr& wr, std::uint64_t length) noexcept {
  if (wr.opcode != WrOpcode::kSend && wr.opcode != WrOpcode::kSendImm) return EOPNOTSUPP;
  const bool aimed = wr.address != nullptr && wr.dest_qpn <= wire::kQpnMask;
  return aimed && length <= wr.address->max_payload ? 0 : EINVAL;
}

}  // namespace

SendQueue::SendQueue(const QpCaps& caps, QpType type)
    : capacity_(caps.max_send_wr),
      mask_(std::bit_ceil(std::max(caps.max_send_wr, 1U)) - 1),
      max_sge_(caps.max_send_sge),
      max_inline_(caps.max_inline_data),
      type_(type) {
  if (!caps.late_rings) allocate();
}

void SendQueue::allocate() {
  const std::size_t entries = std::size_t{mask_} + 1;
  entries_.resize(entries);
  sges_.resize(entries * max_sge_);
  inline_.resize(entries * max_inline_);
  if (type_ == QpType::kRc) operands_.resize(entries);
  if (type_ != QpType::kUd) bindings_.resize(entries);
  if (type_ == QpType::kUd) targets_.resize(entries);
}

std::span<const Sge> SendQueue::sges(std::uint32_t index) const noexcept {
  return {sges_.data() + std::size_t{index & mask_} * max_sge_, at(index).sge_count};
}

const std::byte* SendQueue::inline_bytes(std::uint32_t index) const noexcept {
  return inline_.data() + std::size_t{index & mask_} * max_inline_;
}

int SendQueue::post(const SendWr& wr) noexcept {
  if (entries_.empty()) [[unlikely]]
    allocate();
  if (wr.opcode > WrOpcode::kSendInvalidate) return EOPNOTSUPP;
  if (wr.sges.size() > max_sge_) return EINVAL;
  std::uint64_t length = 0;
  for (const Sge& sge : wr.sges) length += sge.length;
  if (length > kMaxMessageBytes) return EINVAL;
  const bool datagram = !targets_.empty();
  if (datagram) {
    if (const int error = check_datagram(wr, length); error != 0) return error;
  }
  if (wr.inline_data && (length > max_inline_ || is_fetch(wr.opcode))) return EINVAL;
  if (is_atomic(wr.opcode) && length != kAtomicBytes) return EINVAL;
  if (is_local(wr.opcode) && (length != 0 || (wr.binding == nullptr && wr.opcode == WrOpcode::kBindWindow)))
    return EINVAL;
  const bool needs_answer = is_fetch(wr.opcode) || wr.opcode == WrOpcode::kSendInvalidate;
  if (needs_answer && operands_.empty()) return EINVAL;  // UC has none

  const std::uint32_t index = posted_.load(std::memory_order_relaxed);
  if (index - freed_.load(std::memory_order_acquire) >= capacity_) return ENOMEM;

  SendWqe& wqe = at(index);
  wqe = {};
  wqe.wr_id = wr.wr_id;
  wqe.remote_address = wr.remote_address;
  wqe.rkey = wr.rkey;
  wqe.immediate = wr.immediate;
  wqe.length = static_cast<std::uint32_t>(length);
  wqe.opcode = wr.opcode;
  wqe.signaled = wr.signaled;
  wqe.solicited = wr.solicited;
  wqe.inline_data = wr.inline_data;
  if (datagram) targets_[index & mask_] = {*wr.address, wr.dest_qpn, wr.qkey};
  wqe.fence = wr.fence;
  wqe.fetch = is_fetch(wr.opcode);
  wqe.local = is_local(wr.opcode);
  if (is_atomic(wr.opcode)) operands_[index & mask_] = {wr.compare_add, wr.swap};
  if (wr.opcode == WrOpcode::kBindWindow) bindings_[index & mask_] = *wr.binding;
  if (wr.inline_data) {
    std::byte* to = inline_.data() + std::size_t{index & mask_} * max_inline_;
    for (const Sge& sge : wr.sges) {
      if (sge.length == 0) continue;
      std::memcpy(to, reinterpret_cast<const void*>(static_cast<std::uintptr_t>(sge.address)), sge.length);
      to += sge.length;
    }
  } else {
    wqe.sge_count = static_cast<std::uint8_t>(wr.sges.size());
    std::copy(wr.sges.begin(), wr.sges.end(), sges_.data() + std::size_t{index & mask_} * max_sge_);
  }
  posted_.store(index + 1, std::memory_order_release);
  return 0;
}

}  // namespace tensorwire::transport
