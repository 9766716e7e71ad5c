// Buffers, the message under way, and what its bytes may reach, by the rules of the specification (vol. 1, 9.7.4).
#include "reference_receiver.hpp"

#include <algorithm>

namespace tensorwire::transport::faults {

using wire::Position;

AccessResult Registrations::check(std::uint32_t key, PdId pd, std::uint64_t address, std::uint64_t length,
                                  std::uint32_t rights) const noexcept {
  for (const MemoryRegion& region : all) {
    if (region.key != key) continue;
    if (region.pd != pd) return AccessResult::kWrongPd;
    const std::uint64_t last = address + length - 1;  // in bytes, so that a region may end where addresses end
    const bool wraps = last < address;
    if (wraps || address < region.iova || last > region.iova + region.length - 1) return AccessResult::kOutOfRange;
    return (region.access & rights) == rights ? AccessResult::kOk : AccessResult::kNoRight;
  }
  return AccessResult::kBadKey;
}

bool Registrations::permits(const SgeList& sges, PdId pd, std::uint64_t begin, std::uint64_t end,
                            std::uint32_t rights) const noexcept {
  for (const Sge& sge : sges.span()) {
    if (begin < end && begin < sge.length && check(sge.lkey, pd, sge.address, sge.length, rights) != AccessResult::kOk)
      return false;
    begin = begin < sge.length ? 0 : begin - sge.length;
    end = end < sge.length ? 0 : end - sge.length;
  }
  return true;
}

void Registrations::remove(std::uint32_t key) noexcept {
  std::erase_if(all, [key](const MemoryRegion& region) { return region.key == key; });
}

// ---- buffers

const ReferenceReceive* ReferenceReceiver::front_receive() const noexcept {
  if (holding_) return &held_;
  if (shared_ != nullptr) return shared_->front();
  return receives_head_ == receives_.size() ? nullptr : &receives_[receives_head_];
}

void ReferenceReceiver::forget_receives() noexcept {
  receives_.clear();
  receives_head_ = 0;
  let_go();
  message_ = Message::kNone;
}

void ReferenceReceiver::hold() {
  if (shared_ == nullptr || holding_) return;
  hits_(shared_->held == 0 ? Point::kSrqHeld : Point::kSrqInterleaved);
  held_ = shared_->take();
  holding_ = true;
  ++shared_->held;
}

void ReferenceReceiver::let_go() {
  if (!holding_) return;
  holding_ = false;
  --shared_->held;
}

ReferenceReceive ReferenceReceiver::take_receive() {
  if (holding_) {
    let_go();
    return held_;
  }
  return shared_ != nullptr ? shared_->take() : receives_[receives_head_++];
}

void ReferenceReceiver::complete_receive(const wire::Headers& headers, WcStatus status, std::uint32_t bytes) {
  hits_(status == WcStatus::kSuccess            ? Point::kReceiveSuccess
        : status == WcStatus::kLocalLengthError ? Point::kReceiveTooShort
                                                : Point::kReceiveProtection);
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  Completion completion;
  if (shared_ != nullptr && shared_->pd != config.pd) hits_(Point::kSrqOtherDomain);
  completion.wr_id = take_receive().wr_id;
  completion.status = status;
  completion.opcode = traits.write ? WcOpcode::kRecvWithImm : WcOpcode::kRecv;
  completion.byte_len = bytes;
  completion.qp_num = config.qpn;
  completion.src_qp = config.peer_qpn;
  if (traits.immediate) {
    completion.immediate = headers.immediate;
    completion.flags = kWcWithImm;
  }
  if (traits.invalidate && status == WcStatus::kSuccess) {
    completion.flags = kWcWithInvalidate;
    completion.invalidated_key = headers.invalidate_rkey;
  }
  completions.push_back(completion);
}

void ReferenceReceiver::flush_receives() {
  if (holding_) hits_(Point::kSrqHeldFlushed);
  while (holding_ || receives_outstanding() != 0) {
    hits_(Point::kReceiveFlushed);
    Completion completion;
    completion.wr_id = take_receive().wr_id;
    completion.status = WcStatus::kFlushError;
    completion.opcode = WcOpcode::kRecv;
    completion.qp_num = config.qpn;
    completions.push_back(completion);
  }
}

// ---- the message under way

ReferenceReceiver::Message ReferenceReceiver::message_of(const wire::OpcodeTraits& traits) noexcept {
  return traits.send ? Message::kSend : Message::kWrite;
}

bool ReferenceReceiver::length_fits(const wire::OpcodeTraits& traits, std::uint32_t bytes,
                                    std::uint32_t limit) noexcept {
  if (!traits.ends()) return bytes == limit;
  return bytes <= limit && (traits.begins() || bytes != 0);
}

void ReferenceReceiver::judge_send(const wire::Headers& headers, std::uint32_t bytes, Judgement& judgement) const {
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  if (front_receive() == nullptr) {
    judgement.plan = RxPlan::kNotReady;
    judgement.point = shared_ != nullptr ? Point::kNotReadyShared : Point::kNotReadySend;
    return;
  }
  const ReferenceReceive& receive = *front_receive();
  const std::uint64_t begin = traits.begins() ? 0 : done_;
  const std::uint64_t end = begin + bytes;
  if (end > receive.capacity) {
    judgement.plan = RxPlan::kTooLong;
    judgement.point = Point::kInvalidTooLong;
    return;
  }
  if (traits.invalidate && !registrations_.can_invalidate(headers.invalidate_rkey, config.pd, config.qpn)) {
    judgement.plan = RxPlan::kNotInvalidated;
    judgement.point = Point::kAccessInvalidate;
    return;
  }
  judgement.plan = RxPlan::kExecute;
  if (receive.sges.count != 0) judgement.address = receive.sges.items[0].address + begin;  // its elements are adjacent
  if (registrations_.permits(receive.sges, receive_domain(), begin, end, kAccessLocalWrite)) return;
  judgement.plan = RxPlan::kLocalProtection;
  judgement.point = Point::kOperationalSges;
}

void ReferenceReceiver::judge_write(const wire::Headers& headers, std::uint32_t bytes, Judgement& judgement) const {
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  const bool starts = traits.begins();
  const std::uint32_t length = starts ? headers.dma_length : write_length_;
  const std::uint32_t arrived = starts ? 0 : done_;
  const std::uint32_t key = starts ? headers.rkey : write_key_;
  const std::uint64_t address = starts ? headers.va : write_address_;
  const std::uint64_t after = std::uint64_t{arrived} + bytes;
  judgement.point = Point::kInvalidReth;
  if (length > (1U << 31) || (traits.ends() ? after != length : after >= length)) return;

  judgement.plan = RxPlan::kRemoteAccess;
  if (length != 0) {
    judgement.point = refused_access(key, address, length, kAccessRemoteWrite);
    if (judgement.point != Point::kExecute) return;
  }
  judgement.address = address + arrived;
  judgement.plan = RxPlan::kExecute;
  if (traits.immediate && front_receive() == nullptr) {
    judgement.plan = RxPlan::kNotReady;
    judgement.point = shared_ != nullptr ? Point::kNotReadyShared : Point::kNotReadyWrite;
  }
}

Point ReferenceReceiver::refused_access(std::uint32_t key, std::uint64_t address, std::uint32_t length,
                                        std::uint32_t right) const {
  if ((config.access & right) == 0) return Point::kAccessQp;
  switch (registrations_.reach(key, config.pd, config.qpn, address, length, right)) {
    case AccessResult::kBadKey:
      return Point::kAccessKey;
    case AccessResult::kWrongPd:
      return Point::kAccessDomain;
    case AccessResult::kOutOfRange:
      return Point::kAccessRange;
    case AccessResult::kNoRight:
      return Point::kAccessRight;
    case AccessResult::kOk:
      break;
  }
  return Point::kExecute;
}

bool ReferenceReceiver::take(const wire::Headers& headers, std::uint32_t bytes) {
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  if (traits.begins()) {
    done_ = 0;
    write_length_ = headers.dma_length;
    write_key_ = headers.rkey;
    write_address_ = headers.va;
  }
  done_ += bytes;
  if (traits.begins() && !traits.ends() && traits.send) hold();
  message_ = traits.ends() ? Message::kNone : message_of(traits);
  return traits.ends();
}

}  // namespace tensorwire::transport::faults
