// The reference responder: what a packet is by the rules of the specification (vol. 1, 9.7.4), what it changes, and
// what the peer is owed for it. Also the reference for registered memory.
#include <algorithm>

#include "reference_qp.hpp"
#include "violation.hpp"

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

void Registrations::remove(std::uint32_t key) noexcept {
  std::erase_if(all, [key](const MemoryRegion& region) { return region.key == key; });
}

// ---- receives

void ReferenceQp::post_receive(std::uint64_t wr_id, const SgeList& sges) { receives_.emplace_back(wr_id, sges); }

const ReferenceReceive* ReferenceQp::front_receive() const noexcept {
  if (holding_) return &held_;
  if (shared_ != nullptr) return shared_->front();
  return receives_head_ == receives_.size() ? nullptr : &receives_[receives_head_];
}

/// Others take from a shared queue meanwhile: the buffer of a message under way is out of it.
void ReferenceQp::hold() {
  if (shared_ == nullptr) return;
  hits_(shared_->held == 0 ? Point::kSrqHeld : Point::kSrqInterleaved);
  held_ = shared_->take();
  holding_ = true;
  ++shared_->held;
}

void ReferenceQp::let_go() {
  if (!holding_) return;
  holding_ = false;
  --shared_->held;
}

ReferenceReceive ReferenceQp::take_receive() {
  if (holding_) {
    let_go();
    return held_;
  }
  return shared_ != nullptr ? shared_->take() : receives_[receives_head_++];
}

// ---- judging

Judgement ReferenceQp::judge(const wire::Headers& headers, std::uint32_t bytes,
                             const PacketSource& source) const noexcept {
  const auto drop = [](DropReason reason) {
    Judgement judgement;
    judgement.drop = reason;
    return judgement;
  };
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  if (!sending() && (state != QpState::kRtr || traits.response)) return drop(DropReason::kWrongState);
  if (source.address != config.peer) return drop(DropReason::kWrongSource);
  if (headers.pkey != 0xffff && headers.pkey != 0x7fff) return drop(DropReason::kWrongPkey);
  const auto service = static_cast<unsigned>(headers.opcode) >> 5;  // 0 is RC
  if (!traits.known || (service != 0 && headers.opcode != wire::Opcode::kCnp)) return drop(DropReason::kWrongOpcode);
  if (bytes > source.mtu) return drop(DropReason::kBadLength);

  Judgement judgement;
  judgement.action = RxAction::kControl;
  if (headers.opcode == wire::Opcode::kCnp) {
    judgement.plan = RxPlan::kCongestion;
    judgement.point = Point::kCongestion;
    return judgement;
  }
  if (traits.response) return judge_answer(headers, bytes);
  const std::uint32_t expected = static_cast<std::uint32_t>((config.rq_psn + executed) % (1U << 24));
  const std::uint32_t ahead = (headers.psn - expected) % (1U << 24);
  const bool whole = source.mtu > mtu_bytes(MtuCode::k4096);  // by a link that does not cut
  if (ahead == 0) return judge_request(headers, bytes, whole ? source.mtu : config.mtu);
  if (ahead < (1U << 23)) {
    if (refused_) return drop(DropReason::kOutOfSequence);
    judgement.plan = RxPlan::kGap;
    judgement.point = Point::kGap;
  } else {
    judgement.plan = RxPlan::kDuplicate;
    judgement.point = owed == Owed::kNak ? Point::kDuplicateWhileNak : Point::kDuplicate;
  }
  return judgement;
}

Judgement ReferenceQp::judge_request(const wire::Headers& headers, std::uint32_t bytes, std::uint32_t limit) const {
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  Judgement judgement;
  judgement.action = RxAction::kControl;
  judgement.plan = RxPlan::kInvalidRequest;
  const bool starts = traits.position == Position::kFirst || traits.position == Position::kOnly;
  const bool ends = traits.position == Position::kLast || traits.position == Position::kOnly;
  if (message_ != (starts ? Message::kNone : traits.send ? Message::kSend : Message::kWrite)) {
    judgement.point = Point::kInvalidOrder;
  } else if (bytes > limit || (!ends && bytes < limit) || (ends && !starts && bytes == 0)) {
    judgement.point = Point::kInvalidLength;
  } else if (traits.fetch) {
    judge_fetch(headers, bytes, judgement);
  } else {
    judgement.verify_first = starts;
    judgement.bytes = bytes;
    if (traits.send) {
      judge_send(traits, bytes, judgement);
    } else {
      judge_write(traits, headers, bytes, judgement);
    }
    if (judgement.plan == RxPlan::kExecute) {
      judgement.point = Point::kExecute;
      if (bytes != 0) judgement.action = RxAction::kPlace;
    }
  }
  return judgement;
}

void ReferenceQp::judge_send(const wire::OpcodeTraits& traits, std::uint32_t bytes, Judgement& judgement) const {
  const bool starts = traits.position == Position::kFirst || traits.position == Position::kOnly;
  if (front_receive() == nullptr) {
    judgement.plan = RxPlan::kNotReady;
    judgement.point = shared_ != nullptr ? Point::kNotReadyShared : Point::kNotReadySend;
    return;
  }
  const ReferenceReceive& receive = *front_receive();
  std::uint64_t begin = starts ? 0 : done_;
  std::uint64_t end = begin + bytes;
  if (end > receive.capacity) {
    judgement.plan = RxPlan::kTooLong;
    judgement.point = Point::kInvalidTooLong;
    return;
  }
  if (traits.invalidate) {  // nobody has a window here
    judgement.plan = RxPlan::kNotInvalidated;
    judgement.point = Point::kAccessInvalidate;
    return;
  }
  judgement.plan = RxPlan::kExecute;
  if (receive.sges.count != 0) judgement.address = receive.sges.items[0].address + begin;  // its elements are adjacent
  for (const Sge& sge : receive.sges.span()) {
    if (begin < end && begin < sge.length &&
        registrations_.check(sge.lkey, receive_domain(), sge.address, sge.length, kAccessLocalWrite) !=
            AccessResult::kOk) {
      judgement.plan = RxPlan::kLocalProtection;
      judgement.point = Point::kOperationalSges;
      return;
    }
    begin = begin < sge.length ? 0 : begin - sge.length;
    end = end < sge.length ? 0 : end - sge.length;
  }
}

void ReferenceQp::judge_write(const wire::OpcodeTraits& traits, const wire::Headers& headers, std::uint32_t bytes,
                              Judgement& judgement) const {
  const bool starts = traits.position == Position::kFirst || traits.position == Position::kOnly;
  const bool ends = traits.position == Position::kLast || traits.position == Position::kOnly;
  const std::uint32_t length = starts ? headers.dma_length : write_length_;
  const std::uint32_t arrived = starts ? 0 : done_;
  const std::uint32_t key = starts ? headers.rkey : write_key_;
  const std::uint64_t address = starts ? headers.va : write_address_;
  const std::uint64_t after = std::uint64_t{arrived} + bytes;
  judgement.point = Point::kInvalidReth;
  if (length > (1U << 31) || (ends ? after != length : after >= length)) return;

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

Point ReferenceQp::refused_access(std::uint32_t key, std::uint64_t address, std::uint32_t length,
                                  std::uint32_t right) const {
  if ((config.access & right) == 0) return Point::kAccessQp;
  switch (registrations_.check(key, config.pd, address, length, right)) {
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

void ReferenceQp::commit(const Judgement& judgement, const wire::Headers& headers, std::uint32_t bytes, Ps now,
                         const Memory& memory) {
  if (is_answer(judgement.plan) && judgement.plan != RxPlan::kAcknowledge)
    return on_response(judgement, headers, now, memory);
  if (judgement.point != Point::kCount) hits_(judgement.point);
  switch (judgement.plan) {
    case RxPlan::kAcknowledge:
      return on_answer(headers, now);
    case RxPlan::kExecute:
      return wire::traits(headers.opcode).fetch ? execute_fetch(headers, memory) : execute(headers, bytes);
    case RxPlan::kCongestion:
      return hits_(config.dcqcn.enabled ? Point::kCnpHeeded : Point::kCnpIgnored);
    case RxPlan::kDuplicate:
      return repeat(headers);
    case RxPlan::kGap:
      return refuse(0x60);
    case RxPlan::kNotReady:
      return refuse(static_cast<std::uint8_t>(0x20 + config.min_rnr_timer));
    case RxPlan::kInvalidRequest:
      fail(wire::NakCode::kInvalidRequest);
      hits_(Point::kRequestError);
      return events.push_back(AsyncEvent::kQpRequestError);
    case RxPlan::kRemoteAccess:
      fail(wire::NakCode::kRemoteAccess);
      hits_(Point::kAccessError);
      return events.push_back(AsyncEvent::kQpAccessError);
    case RxPlan::kTooLong:
      complete_receive(headers, WcStatus::kLocalLengthError, 0);
      return fail(wire::NakCode::kInvalidRequest);
    case RxPlan::kNotInvalidated:
      complete_receive(headers, WcStatus::kRemoteInvalidRequestError, 0);
      return fail(wire::NakCode::kRemoteAccess);
    case RxPlan::kLocalProtection:
      complete_receive(headers, WcStatus::kLocalProtectionError, 0);
      return fail(wire::NakCode::kRemoteOperational);
    default:
      throw Violation("the simulator knows the plan");
  }
}

void ReferenceQp::pass(std::uint64_t count) {
  if (!established_ && state == QpState::kRtr) {
    hits_(Point::kEstablished);
    events.push_back(AsyncEvent::kCommEstablished);
  }
  established_ = true;
  executed += count;
  refused_ = false;
  if (owed == Owed::kNak) {
    hits_(Point::kNakUnsent);
    owed = Owed::kAck;
  }
}

void ReferenceQp::execute(const wire::Headers& headers, std::uint32_t bytes) {
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  if (state == QpState::kSqd) hits_(Point::kExecuteInSqd);
  pass(1);
  if (traits.position == Position::kFirst || traits.position == Position::kOnly) {
    done_ = 0;
    write_length_ = headers.dma_length;
    write_key_ = headers.rkey;
    write_address_ = headers.va;
  }
  done_ += bytes;
  message_ = traits.send ? Message::kSend : Message::kWrite;
  if (traits.position == Position::kFirst && traits.send) hold();
  if (traits.position == Position::kLast || traits.position == Position::kOnly) {
    message_ = Message::kNone;
    messages_ = (messages_ + 1) % (1U << 24);
    if (traits.send || traits.immediate) complete_receive(headers, WcStatus::kSuccess, done_);
  }
  if (++unacknowledged_ >= config.ack_coalesce || headers.ack_req) owe_ack();
}

void ReferenceQp::complete_receive(const wire::Headers& headers, WcStatus status, std::uint32_t bytes) {
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
  completions.push_back(completion);
}

void ReferenceQp::reject(const Judgement& judgement, const wire::Headers& headers, Ps now) {
  if (is_answer(judgement.plan)) {
    Judgement unplaced = judgement;
    unplaced.plan = RxPlan::kResponseUnplaced;
    return on_response(unplaced, headers, now, {});
  }
  hits_(Point::kOperationalGone);
  if (wire::traits(headers.opcode).send) {
    complete_receive(headers, WcStatus::kLocalProtectionError, 0);
    return fail(wire::NakCode::kRemoteOperational);
  }
  fail(wire::NakCode::kRemoteOperational);
  hits_(Point::kAccessError);
  events.push_back(AsyncEvent::kQpAccessError);
}

void ReferenceQp::refuse(std::uint8_t syndrome) {
  refused_ = true;
  owed = Owed::kNak;
  owed_psn_ = config.rq_psn + executed;
  nak_syndrome_ = syndrome;
}

void ReferenceQp::fail(wire::NakCode code) {
  refuse(static_cast<std::uint8_t>(0x60 + static_cast<unsigned>(code)));
  enter_error();
}

void ReferenceQp::owe_ack() {
  owed = Owed::kAck;
  unacknowledged_ = 0;
}

void ReferenceQp::on_answer_sent(const TxDesc& desc) {
  const wire::Headers& h = desc.headers;
  require(owed != Owed::kNothing, "an answer is owed to the peer, once");
  end_broken_repetitions();
  // Of a queue pair that failed before, nothing but this NAK tells that a response found its memory gone.
  if (state == QpState::kErr && reply_broken()) fail_reply(wire::NakCode::kRemoteAccess, reply_psn());
  require(!replies_pending(), "no ACK or NAK overtakes an answer with data");
  require(state != QpState::kReset && state != QpState::kInit, "only a queue pair that can receive answers");
  const std::uint64_t expected = config.rq_psn + executed;
  if (owed == Owed::kNak) {
    hits_(state == QpState::kErr ? Point::kNakSentInError : Point::kNakSent);
    require(h.syndrome == nak_syndrome_, "the NAK says what is wrong");
    require(h.psn == owed_psn_ % (1U << 24), "a NAK carries the PSN that is expected");
  } else if (owed == Owed::kOldAck) {
    hits_(Point::kOldAckSent);
    require(h.syndrome == 0x1f, "an ACK carries no credit count");
    require(h.psn == owed_psn_ % (1U << 24), "a repeated ACK ends before the next READ or atomic");
  } else {
    hits_(Point::kAckSent);
    require(h.syndrome == 0x1f, "an ACK carries no credit count");
    require(h.psn == (expected - 1) % (1U << 24), "an ACK carries the newest PSN that was executed");
  }
  require(h.msn == messages_, "the MSN counts the messages that are complete");
  require(h.opcode == wire::Opcode::kRcAck && desc.payload_bytes == 0 && h.pad == 0, "an answer is an ACK packet");
  require(h.dest_qpn == config.peer_qpn && desc.av->remote == config.peer, "an answer goes to the peer");
  require(desc.src_qpn == config.qpn && !desc.retransmission, "an answer is of its queue pair");
  owed = Owed::kNothing;
  unacknowledged_ = 0;
}

}  // namespace tensorwire::transport::faults
