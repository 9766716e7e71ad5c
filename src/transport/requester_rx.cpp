// Requester, answers and time: cumulative ACK, go-back-N, RNR, retry limits, credits, completions, flush.
#include <array>

#include "transport/qp.hpp"
#include "transport/requester.hpp"
#include "transport/timing.hpp"

namespace tensorwire::transport {
namespace {

constexpr std::uint8_t kInfiniteRnrRetry = 7;

/// By WrOpcode.
constexpr std::array kCompletionOpcodes = {
    WcOpcode::kWrite,      WcOpcode::kWrite,       WcOpcode::kSend,     WcOpcode::kSend,
    WcOpcode::kRead,       WcOpcode::kCompareSwap, WcOpcode::kFetchAdd, WcOpcode::kLocalInvalidate,
    WcOpcode::kBindWindow, WcOpcode::kSend};

/// Receive WQEs by credit code (IB specification vol. 1, 9.7.5.1.2, table "AETH credit codes").
constexpr std::array<std::uint32_t, wire::kCreditsInvalid> kCredits = {
    0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

}  // namespace

bool Requester::expects(std::uint32_t psn) const noexcept {
  return wire::psn_diff(psn, una_psn_) >= 0 && wire::psn_diff(psn, high_psn_) < 0;
}

void Requester::classify(const wire::Headers& headers, std::uint32_t payload_bytes, RxVerdict& verdict) const noexcept {
  RxPlan plan = RxPlan::kNone;
  if (headers.opcode != wire::Opcode::kRcAck) {
    plan = judge_response(headers, payload_bytes, verdict);
  } else if (expects(headers.psn)) {
    plan = RxPlan::kAcknowledge;
  } else if (credits_given_ && wire::psn_add(headers.psn, 1) == una_psn_) {
    plan = RxPlan::kCredits;
  }
  if (plan == RxPlan::kNone) {
    verdict.drop = DropReason::kStale;
    return;
  }
  if (plan != RxPlan::kResponse) verdict.piece_count = 0;
  verdict.plan = static_cast<std::uint8_t>(plan);
  verdict.action = verdict.piece_count != 0 ? RxAction::kPlace : RxAction::kControl;
}

void Requester::commit(RxPlan plan, const wire::Headers& headers, std::uint32_t payload_bytes, Ps now) noexcept {
  if (!can_send(qp_.state())) return;
  switch (plan) {
    case RxPlan::kAcknowledge:
      if (expects(headers.psn)) on_acknowledge(headers, now);
      break;
    case RxPlan::kCredits:
      if (wire::psn_add(headers.psn, 1) == una_psn_) take_credits(headers);
      break;
    default:
      on_response(plan, headers, payload_bytes, now);
  }
  if (!can_send(qp_.state())) return;
  schedule();
  if (qp_.state() == QpState::kSqd) qp_.settle_drain();
}

void Requester::on_acknowledge(const wire::Headers& headers, Ps now) noexcept {
  const std::uint8_t kind = headers.syndrome & wire::kSyndromeKindMask;
  const std::uint8_t value = headers.syndrome & wire::kSyndromeValueMask;
  if (kind != wire::kSyndromeAck && kind != wire::kSyndromeRnrNak && kind != wire::kSyndromeNak) return;  // reserved
  take_credits(headers);
  const std::uint32_t end = kind == wire::kSyndromeAck ? wire::psn_add(headers.psn, 1) : headers.psn;
  // An answer beyond a fetch says that the answer to the fetch is not coming any more.
  const bool leaves_out = fetch_count_ != 0 && wire::psn_diff(end, due_psn()) > 0;
  advance(leaves_out ? due_psn() : end, now);
  if (!can_send(qp_.state())) return;
  if (leaves_out) return on_loss(core_.counters.implied_nak_seq_err, now);
  if (kind == wire::kSyndromeRnrNak) return on_rnr_nak(value, now);
  if (kind != wire::kSyndromeNak) return;
  if (value == static_cast<std::uint8_t>(wire::NakCode::kPsnSequence)) {
    on_loss(core_.counters.packet_seq_err, now);
  } else {
    on_fatal_nak(value);
  }
}

void Requester::take_credits(const wire::Headers& headers) noexcept {
  if ((headers.syndrome & wire::kSyndromeKindMask) != wire::kSyndromeAck) return;
  const std::uint8_t code = headers.syndrome & wire::kSyndromeValueMask;
  credits_given_ = code != wire::kCreditsInvalid;
  if (credits_given_) credit_limit_ = headers.msn + kCredits[code];
}

bool Requester::beyond_credits(const SendWqe& wqe, bool last) const noexcept {
  const bool consumes = is_send(wqe.opcode) || (wqe.opcode == WrOpcode::kWriteImm && last);
  const std::uint32_t ssn = next_index_ == started_ ? next_ssn_ : wqe.ssn;
  return consumes && wire::psn_diff(ssn, credit_limit_) > 0;
}

bool Requester::advance(std::uint32_t end, Ps now) noexcept {
  if (wire::psn_diff(end, una_psn_) <= 0) return false;
  SendQueue& queue = qp_.send_queue();
  const bool past_next = wire::psn_diff(end, next_psn_) > 0;
  std::uint64_t released = 0;
  while (queue.head() != started_) {
    const SendWqe& wqe = queue.at(queue.head());
    const auto from = static_cast<std::uint32_t>(wire::psn_diff(una_psn_, wqe.first_psn));
    const std::uint32_t wqe_end = wire::psn_add(wqe.first_psn, wqe.packets);
    const bool whole = wire::psn_diff(wqe_end, end) <= 0;
    const std::uint32_t to = whole ? wqe.packets : static_cast<std::uint32_t>(wire::psn_diff(end, wqe.first_psn));
    released += charge_between(wqe, from, to);
    if (wqe.fetch) fetch_advanced(wqe, from, to);
    if (!whole) break;
    una_psn_ = wqe_end;
    // A local request is over with what was before it, also when sending again is about to come by it.
    if (next_index_ == queue.head()) ++next_index_;
    complete_head(WcStatus::kSuccess);
  }
  una_psn_ = end;
  if (past_next) {  // after a rewind, an old acknowledgement may cover what was about to be sent again
    released = in_flight_;
    fetches_out_ = 0;
    stalled_ = WcStatus::kSuccess;
    seek_head(end);
  }
  in_flight_ -= released;
  core_.scheduler.release(qp_.path(), released);

  retries_left_ = qp_.attributes().retry_cnt;
  rnr_retries_left_ = qp_.attributes().rnr_retry;
  retrying_ = false;
  holding_ = false;
  restart_timer(now);
  if (stalled_ != WcStatus::kSuccess && next_index_ == queue.head()) fail_head(stalled_);
  return true;
}

void Requester::seek_head(std::uint32_t psn) noexcept {
  const std::uint32_t head = qp_.send_queue().head();
  next_psn_ = psn;
  next_index_ = head;
  next_packet_ =
      head == started_ ? 0 : static_cast<std::uint32_t>(wire::psn_diff(psn, qp_.send_queue().at(head).first_psn));
}

void Requester::rewind() noexcept {
  core_.scheduler.release(qp_.path(), in_flight_);
  in_flight_ = 0;
  fetches_out_ = 0;
  stalled_ = WcStatus::kSuccess;
  since_ack_request_ = 0;
  seek_head(una_psn_);
}

void Requester::retry(Ps now) noexcept {
  if (retries_left_ == 0) return fail_head(WcStatus::kRetryExceeded);
  --retries_left_;
  rewind();
  restart_timer(now);  // off, until the first packet leaves again: a pause costs no retries
  schedule();
}

void Requester::on_loss(std::uint64_t& counter, Ps now) noexcept {
  ++counter;
  if (retrying_ || holding_) return;
  retrying_ = true;
  retry(now);
}

void Requester::on_rnr_nak(std::uint8_t code, Ps now) noexcept {
  ++core_.counters.rnr_nak_retry_err;
  if (holding_) return;
  if (qp_.attributes().rnr_retry != kInfiniteRnrRetry) {
    if (rnr_retries_left_ == 0) return fail_head(WcStatus::kRnrRetryExceeded);
    --rnr_retries_left_;
  }
  rewind();
  holding_ = true;
  core_.timers.set(qp_, now + rnr_wait(code));
}

void Requester::on_fatal_nak(std::uint8_t code) noexcept {
  switch (static_cast<wire::NakCode>(code)) {
    case wire::NakCode::kInvalidRequest:
      ++core_.counters.req_remote_invalid_request;
      return fail_head(WcStatus::kRemoteInvalidRequestError);
    case wire::NakCode::kRemoteAccess:
      ++core_.counters.req_remote_access_errors;
      return fail_head(WcStatus::kRemoteAccessError);
    case wire::NakCode::kRemoteOperational:
      return fail_head(WcStatus::kRemoteOperationError);
    default:
      return fail_head(WcStatus::kBadResponseError);
  }
}

void Requester::on_timer(Ps now) noexcept {
  if (holding_) {
    holding_ = false;
    return schedule();
  }
  ++core_.counters.local_ack_timeout_err;
  retrying_ = false;
  retry(now);
}

void Requester::restart_timer(Ps now) noexcept {
  if (in_flight_ == 0 || timeout_ == kNever) {
    core_.timers.cancel(qp_);
  } else {
    core_.timers.set(qp_, now + timeout_);
  }
}

void Requester::fail_head(WcStatus status) noexcept {
  complete_head(status);
  qp_.enter_error();
}

void Requester::complete_head(WcStatus status) noexcept {
  SendQueue& queue = qp_.send_queue();
  const SendWqe& wqe = queue.at(queue.head());
  Completion completion;
  completion.wr_id = wqe.wr_id;
  completion.status = status;
  completion.opcode = kCompletionOpcodes[static_cast<std::size_t>(wqe.opcode)];
  completion.byte_len = wqe.length;
  completion.qp_num = qp_.qpn();
  const bool wanted = wqe.signaled || qp_.init().signal_all || status != WcStatus::kSuccess;
  queue.pop();  // before the push: who sees the completion may post again
  if (status == WcStatus::kFlushError) {
    ++core_.counters.req_cqe_flush_error;
  } else if (status != WcStatus::kSuccess) {
    ++core_.counters.req_cqe_error;
  }
  if (wanted) qp_.complete(*qp_.init().send_cq, completion, false);
}

void Requester::stop() noexcept {
  core_.scheduler.release(qp_.path(), in_flight_);
  in_flight_ = 0;
  core_.scheduler.data_done(qp_);
  core_.timers.cancel(qp_);
  qp_.stop_pacing();
  forget_fetches();
  una_psn_ = next_psn_ = high_psn_;
  retrying_ = holding_ = false;
  stalled_ = WcStatus::kSuccess;
}

void Requester::flush() noexcept {
  stop();
  while (qp_.send_queue().head() != qp_.send_queue().posted()) complete_head(WcStatus::kFlushError);
  next_index_ = started_ = qp_.send_queue().head();
  next_packet_ = 0;
}

}  // namespace tensorwire::transport
