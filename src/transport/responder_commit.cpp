// Responder, acting: executes SENDs and WRITEs that were judged good, completes receives, decides what the peer is
// owed, and fails.
#include "transport/qp.hpp"
#include "transport/responder.hpp"

namespace tensorwire::transport {

using wire::NakCode;

namespace {

/// Nothing that is still a duplicate lies before it.
constexpr std::uint64_t kFirstPosition = 1ULL << 32;

}  // namespace

void Responder::start() noexcept {
  stop();
  expected_psn_ = qp_.attributes().rq_psn;
  position_ = kFirstPosition;
  mtu_ = mtu_bytes(qp_.attributes().path_mtu);
  msn_ = 0;
  established_ = false;
}

void Responder::stop() noexcept {
  qp_.stop_notices();
  message_ = Message::kNone;
  refused_ = false;
  owed_ = Owed::kNothing;
  unacknowledged_ = 0;
  resources_.reset(qp_.attributes().max_dest_rd_atomic);
}

void Responder::resize() noexcept { resources_.resize(qp_.attributes().max_dest_rd_atomic); }

bool Responder::still_holds(RxPlan plan, const wire::Headers& headers) const noexcept {
  if (!can_receive(qp_.state())) return false;
  return plan == RxPlan::kDuplicate || plan == RxPlan::kGap || headers.psn == expected_psn_;
}

void Responder::commit(RxPlan plan, const wire::Headers& headers, std::uint32_t payload_bytes) noexcept {
  if (!still_holds(plan, headers)) return;
  EngineCounters& counters = core_.counters;
  switch (plan) {
    case RxPlan::kExecute:
      return execute(headers, payload_bytes);
    case RxPlan::kDuplicate:
      ++counters.duplicate_request;
      return repeat(headers);
    case RxPlan::kGap:
      ++counters.out_of_sequence;
      return refuse(wire::kSyndromeNak | static_cast<std::uint8_t>(NakCode::kPsnSequence));
    case RxPlan::kNotReady:
      ++counters.out_of_buffer;
      return refuse(static_cast<std::uint8_t>(wire::kSyndromeRnrNak | qp_.attributes().min_rnr_timer));
    case RxPlan::kInvalidRequest:
      fail(NakCode::kInvalidRequest);
      return qp_.raise(AsyncEvent::kQpRequestError);
    case RxPlan::kRemoteAccess:
      ++counters.resp_remote_access_errors;
      fail(NakCode::kRemoteAccess);
      return qp_.raise(AsyncEvent::kQpAccessError);
    case RxPlan::kTooLong:
      ++counters.resp_local_length_error;
      complete_receive(headers, WcStatus::kLocalLengthError, 0);
      return fail(NakCode::kInvalidRequest);
    case RxPlan::kNotInvalidated:
      return refuse_invalidation(headers);
    case RxPlan::kLocalProtection:
      complete_receive(headers, WcStatus::kLocalProtectionError, 0);
      return fail(NakCode::kRemoteOperational);
    default:
      return;
  }
}

void Responder::pass(std::uint32_t psns, std::uint32_t bytes) noexcept {
  ++core_.counters.rx_packets;
  core_.counters.rx_bytes += bytes;
  if (!established_) {
    established_ = true;
    if (qp_.state() == QpState::kRtr) qp_.raise(AsyncEvent::kCommEstablished);
  }
  expected_psn_ = wire::psn_add(expected_psn_, psns);
  position_ += psns;
  refused_ = false;
  if (owed_ == Owed::kNak) owed_ = Owed::kAck;  // what it complained of has arrived
}

void Responder::execute(const wire::Headers& headers, std::uint32_t bytes) noexcept {
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  if (traits.fetch) return traits.atomic_eth ? execute_atomic(headers) : execute_read(headers);
  // The step that makes every later copy of the packet a duplicate is this one, too: it is invalidated once.
  if (traits.invalidate && !core_.memory.invalidate(headers.invalidate_rkey, qp_.init().pd, qp_.qpn()))
    return refuse_invalidation(headers);
  pass(1, bytes);
  const bool first = traits.begins();
  const bool last = traits.ends();
  if (first) {
    done_bytes_ = 0;
    write_length_ = headers.dma_length;
    write_key_ = headers.rkey;
    write_address_ = headers.va;
  }
  done_bytes_ += bytes;
  if (first && !last && traits.send) qp_.receive_queue().hold();
  message_ = last ? Message::kNone : (traits.send ? Message::kSend : Message::kWrite);
  if (last) {
    msn_ = (msn_ + 1) & wire::kPsnMask;
    if (traits.send || traits.immediate) complete_receive(headers, WcStatus::kSuccess, done_bytes_);
  }
  if (qp_.unanswered) return;
  if (headers.ack_req || ++unacknowledged_ >= core_.config.ack_coalesce) owe_ack();
}

/// The specification calls this an error of class J. The bytes may have been placed already; the message has not come.
void Responder::refuse_invalidation(const wire::Headers& headers) noexcept {
  ++core_.counters.resp_remote_access_errors;
  complete_receive(headers, WcStatus::kRemoteInvalidRequestError, 0);
  fail(NakCode::kRemoteAccess);
}

void Responder::complete_receive(const wire::Headers& headers, WcStatus status, std::uint32_t bytes) noexcept {
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  Completion completion;
  completion.wr_id = qp_.receive_queue().front().wr_id;
  completion.status = status;
  completion.opcode = traits.write ? WcOpcode::kRecvWithImm : WcOpcode::kRecv;
  completion.byte_len = bytes;
  completion.qp_num = qp_.qpn();
  completion.src_qp = qp_.attributes().dest_qpn;
  if (traits.immediate) {
    completion.immediate = headers.immediate;
    completion.flags = kWcWithImm;
  }
  if (traits.invalidate && status == WcStatus::kSuccess) {
    completion.invalidated_key = headers.invalidate_rkey;
    completion.flags = kWcWithInvalidate;
  }
  if (status != WcStatus::kSuccess) ++core_.counters.resp_cqe_error;
  qp_.receive_queue().pop();
  qp_.complete(*qp_.init().recv_cq, completion, headers.solicited);
}

void Responder::reject(const wire::Headers& headers) noexcept {
  if (!still_holds(RxPlan::kExecute, headers)) return;
  if (wire::traits(headers.opcode).send) {
    complete_receive(headers, WcStatus::kLocalProtectionError, 0);
    return fail(NakCode::kRemoteOperational);
  }
  fail(NakCode::kRemoteOperational);
  qp_.raise(AsyncEvent::kQpAccessError);
}

void Responder::hold(const wire::Headers& headers) noexcept {
  if (still_holds(RxPlan::kExecute, headers) && wire::traits(headers.opcode).send) qp_.receive_queue().hold();
}

// A duplicate is acknowledged as far as everything is that was executed, or up to the next READ or atomic: that one's
// answer may have been lost with this one's acknowledgement, and the peer is about to ask for it, too. A NAK that is
// owed says as much as an ACK and more.
void Responder::repeat(const wire::Headers& headers) noexcept {
  const std::uint64_t position = position_of(headers.psn);
  if (wire::traits(headers.opcode).fetch) return repeat_fetch(position, headers);
  if (owed_ == Owed::kNak) return;
  const std::uint64_t next_fetch = resources_.next_after(position, position_);
  if (next_fetch == position_ || owed_ == Owed::kAck) return owe_ack();
  const std::uint32_t last = psn_of(next_fetch - 1);
  if (owed_ == Owed::kNothing || wire::psn_diff(last, owed_psn_) > 0) owed_psn_ = last;
  owed_ = Owed::kOldAck;
  schedule();
}

std::uint64_t Responder::position_of(std::uint32_t psn) const noexcept {
  return position_ + static_cast<std::uint64_t>(std::int64_t{wire::psn_diff(psn, expected_psn_)});
}

std::uint32_t Responder::psn_of(std::uint64_t position) const noexcept {
  return wire::psn_add(expected_psn_, static_cast<std::uint32_t>(position - position_));
}

void Responder::refuse(std::uint8_t syndrome) noexcept {
  refused_ = true;
  owed_ = Owed::kNak;
  owed_psn_ = expected_psn_;
  nak_syndrome_ = syndrome;
  schedule();
}

void Responder::fail(NakCode code) noexcept {
  refuse(static_cast<std::uint8_t>(wire::kSyndromeNak | static_cast<std::uint8_t>(code)));
  qp_.enter_error();
}

void Responder::owe_ack() noexcept {
  owed_ = Owed::kAck;
  unacknowledged_ = 0;
  schedule();
}

/// What fails the queue pair from the peer's side leaves its NAK, and the answers before that.
void Responder::flush() noexcept {
  qp_.stop_notices();
  message_ = Message::kNone;
  if (owed_ != Owed::kNak) {
    resources_.drop_replies();
    core_.scheduler.replies_done(qp_);
  }
  schedule();
  ReceiveQueue& queue = qp_.receive_queue();
  while (queue.has_own()) {
    Completion completion;
    completion.wr_id = queue.front().wr_id;
    completion.status = WcStatus::kFlushError;
    completion.opcode = WcOpcode::kRecv;
    completion.qp_num = qp_.qpn();
    queue.pop();
    ++core_.counters.resp_cqe_flush_error;
    qp_.complete(*qp_.init().recv_cq, completion, false);
  }
}

}  // namespace tensorwire::transport
