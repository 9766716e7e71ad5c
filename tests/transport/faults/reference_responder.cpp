// The reference responder: what a packet is by the rules of the specification (vol. 1, 9.7.4), what it changes, and
// what the peer is owed for it. Also the reference for registered memory.
#include <algorithm>

#include "reference_qp.hpp"
#include "violation.hpp"

namespace tensorwire::transport::faults {

using wire::Position;

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
  const bool cut = !traits.begins() || !traits.ends();
  const bool whole = !cut && source.mtu > mtu_bytes(MtuCode::k4096);  // by a link that need not cut
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
  const bool starts = traits.begins();
  if (message_ != (starts ? Message::kNone : message_of(traits))) {
    judgement.point = Point::kInvalidOrder;
  } else if (!length_fits(traits, bytes, limit)) {
    judgement.point = Point::kInvalidLength;
  } else if (traits.fetch) {
    judge_fetch(headers, bytes, judgement);
  } else {
    judgement.verify_first = starts;
    judgement.bytes = bytes;
    if (traits.send) {
      judge_send(headers, bytes, judgement);
    } else {
      judge_write(headers, bytes, judgement);
    }
    if (judgement.plan == RxPlan::kExecute) {
      judgement.point = Point::kExecute;
      if (bytes != 0) judgement.action = RxAction::kPlace;
    }
  }
  return judgement;
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
  if (traits.invalidate) {
    hits_(Point::kWindowInvalidatedByPeer);
    registrations_.invalidate(headers.invalidate_rkey);
  }
  pass(1);
  if (take(headers, bytes)) {
    messages_ = (messages_ + 1) % (1U << 24);
    if (traits.send || traits.immediate) complete_receive(headers, WcStatus::kSuccess, done_);
  }
  if (++unacknowledged_ >= config.ack_coalesce || headers.ack_req) owe_ack();
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
