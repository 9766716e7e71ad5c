// The reference requester: segmentation, window, cumulative acknowledgement, go-back-N, RNR, retries, completions.
#include <algorithm>

#include "reference_qp.hpp"
#include "transport/scheduler.hpp"
#include "transport/timing.hpp"
#include "violation.hpp"

namespace tensorwire::transport::faults {
namespace {

constexpr std::uint8_t kForever = 7;

bool is_write(WrOpcode opcode) { return opcode == WrOpcode::kWrite || opcode == WrOpcode::kWriteImm; }
bool has_immediate(WrOpcode opcode) { return opcode == WrOpcode::kWriteImm || opcode == WrOpcode::kSendImm; }

/// SENDs are opcodes 0 to 5, WRITEs 6 to 11: First, Middle, Last, Last with immediate, Only, Only with immediate.
std::uint8_t opcode_byte(const ReferenceQp::Send& send, std::uint64_t number) {
  const bool first = number == send.first;
  const bool last = number + 1 == send.end;
  std::uint8_t code = is_write(send.opcode) ? 6 : 0;
  if (!last) return static_cast<std::uint8_t>(code + (first ? 0 : 1));
  if (send.opcode == WrOpcode::kSendInvalidate) return first ? 0x17 : 0x16;
  code = static_cast<std::uint8_t>(code + (first ? 4 : 2));
  return static_cast<std::uint8_t>(code + (has_immediate(send.opcode) ? 1 : 0));
}

Point send_point(WcStatus status) {
  switch (status) {
    case WcStatus::kSuccess:
      return Point::kSendSuccess;
    case WcStatus::kFlushError:
      return Point::kSendFlushed;
    case WcStatus::kLocalProtectionError:
      return Point::kSendLocalProtection;
    case WcStatus::kRemoteInvalidRequestError:
      return Point::kSendInvalidRequest;
    case WcStatus::kRemoteAccessError:
      return Point::kSendRemoteAccess;
    case WcStatus::kRemoteOperationError:
      return Point::kSendRemoteOperation;
    case WcStatus::kWindowBindError:
      return Point::kSendBindError;
    case WcStatus::kRetryExceeded:
      return Point::kSendRetryExceeded;
    case WcStatus::kRnrRetryExceeded:
      return Point::kSendRnrExceeded;
    default:
      return Point::kSendBadResponse;
  }
}

}  // namespace

void ReferenceQp::reset(const ReferenceConfig& with) {
  config = with;
  state = QpState::kReset;
  una = next = high = in_flight = executed = 0;
  deadline = kNever;
  owed = Owed::kNothing;
  sends_.clear();
  head_ = 0;
  retries_left_ = config.retry_cnt;
  rnr_retries_left_ = config.rnr_retry;
  answered_nak_ = waiting_ = draining_ = false;
  lost_ = kNone;
  credits_given_ = false;
  congestion.reset(config.dcqcn);
  forget_receives();
  refused_ = established_ = false;
  unacknowledged_ = messages_ = 0;
  largest_charge_ = std::max<std::uint32_t>(config.mtu, kMinPacketCharge);
  fetched_.clear();
}

std::uint32_t ReferenceQp::psn(std::uint64_t number) const noexcept {
  return static_cast<std::uint32_t>((config.sq_psn + number) % (1U << 24));
}

void ReferenceQp::post_send(const SendWr& wr, const SgeList& sges) {
  std::uint32_t length = 0;
  for (const Sge& sge : sges.span()) length += sge.length;
  const bool fetch = is_fetch(wr.opcode);
  const bool local = is_local(wr.opcode);
  const std::uint64_t count = local ? 0 : config.whole && !fetch ? 1 : packets(length);
  const std::uint64_t first = sends_.empty() ? 0 : sends_.back().end;
  std::uint32_t ssn = 1;
  if (!sends_.empty()) {
    const Send& before = sends_.back();
    ssn = before.ssn + (before.local ? 0 : 1);
    if (before.fetch) ssn += static_cast<std::uint32_t>((before.end - before.first - 1) / request_packets());
  }
  const ReferenceSend posted{wr.wr_id, wr.opcode, wr.signaled,       wr.solicited, wr.inline_data, wr.immediate,
                             length,   sges,      wr.remote_address, wr.rkey,      first};
  const WindowBinding binding = wr.binding != nullptr ? *wr.binding : WindowBinding{};
  sends_.push_back({posted, first + count, ssn, fetch, wr.fence, wr.compare_add, wr.swap, local, binding});
  if (config.whole && !fetch) largest_charge_ = std::max(largest_charge_, length);
}

void ReferenceQp::doorbell() {
  if (state == QpState::kErr) flush();
}

void ReferenceQp::set_error() { enter_error(); }

void ReferenceQp::fail_fatally() {
  enter_error();
  hits_(Point::kQpFatal);
  events.push_back(AsyncEvent::kQpFatal);
}

const ReferenceQp::Send& ReferenceQp::send_of(std::uint64_t number) const {
  for (std::size_t i = head_; i < sends_.size(); ++i)
    if (number < sends_[i].end) return sends_[i];
  throw Violation("what is sent was posted");
}

std::uint32_t ReferenceQp::payload(const Send& send, std::uint64_t number) const noexcept {
  if (config.whole && !send.fetch) return send.length;
  return std::min(send.length - static_cast<std::uint32_t>(number - send.first) * config.mtu, config.mtu);
}

std::uint32_t ReferenceQp::charge(const Send& send, std::uint64_t number) const noexcept {
  return std::max<std::uint32_t>(payload(send, number), kMinPacketCharge);
}

bool ReferenceQp::accessible(const Send& send, std::uint64_t number) const noexcept {
  if (send.inline_data) return true;
  if (send.fetch) {
    return std::all_of(send.sges.span().begin(), send.sges.span().end(), [&](const Sge& sge) {
      return sge.length == 0 ||
             registrations_.check(sge.lkey, config.pd, sge.address, sge.length, kAccessLocalWrite) == AccessResult::kOk;
    });
  }
  const std::uint64_t begin = (number - send.first) * config.mtu;
  return registrations_.permits(send.sges, config.pd, begin, begin + payload(send, number), 0);
}

bool ReferenceQp::source_broken() const noexcept {
  if (!sending() || !sends_pending()) return false;
  if (state == QpState::kSqd && !draining_) return false;  // nobody looks at what was not begun
  if (waiting_) return broken_before_wait_;
  const Send& head = sends_[head_];
  return next < head.end && !accessible(head, next);
}

bool ReferenceQp::ready() const noexcept {
  if (!sending() || waiting_ || lost_ != kNone || !sends_pending()) return false;
  if (const Send* local = due_local()) return local_ready(*local);
  if (next == sends_.back().end) return false;
  const Send& send = send_of(next);
  if (state == QpState::kSqd && !begun(send)) {
    hits_(Point::kDrainHolds);
    return false;
  }
  if (&send != &sends_[head_] && !accessible(send, next)) return false;  // fails when those before it are done
  if (!may_leave(send)) return false;
  if (!credits_permit(send)) {
    hits_(Point::kCreditsHeld);
    return false;
  }
  return in_flight == 0 || in_flight + request_charge(send, next) <= config.window;
}

void ReferenceQp::on_request_sent(const TxDesc& desc, Ps now) {
  require(sending(), "only a queue pair in RTS or SQD sends requests");
  require(!waiting_, "nothing is sent while an RNR wait lasts");
  const Send& send = send_of(next);
  pass_locals(send);
  check_drain_sent(send);
  const std::uint64_t end = request_end(send, next);
  const bool last = end == send.end;
  const std::uint32_t bytes = send.fetch ? 0 : payload(send, next);
  const wire::Headers& h = desc.headers;
  require(may_leave(send), "fences and the limit of READs and atomics hold");
  require(h.psn == psn(next), "PSNs follow each other; going back starts at the oldest unacknowledged one");
  if (send.fetch) {
    check_fetch_sent(send, desc);
  } else {
    require(static_cast<std::uint8_t>(h.opcode) == opcode_byte(send, next), "the opcode fits the place in the message");
  }
  require(h.dest_qpn == config.peer_qpn && h.pkey == wire::kDefaultPkey, "a request is addressed to the peer");
  require(desc.src_qpn == config.qpn && desc.av->remote == config.peer, "a request goes to the peer's address");
  require(desc.payload_bytes == bytes && h.pad == (4 - bytes % 4) % 4, "a packet carries its share of the message");
  require(h.ack_req || !last, "the last packet of a message asks for an acknowledgement");
  require(credits_permit(send), "beyond its credits a queue pair sends only when nothing else is outstanding");
  if (beyond_credits(send, next)) {
    hits_(Point::kCreditsBeyond);
    require(h.ack_req, "what is sent beyond the credits asks for an acknowledgement");
  }
  require(h.solicited == (last && send.solicited && !send.fetch && send.opcode != WrOpcode::kWrite),
          "the solicited bit is on the last");
  if (is_write(send.opcode) && next == send.first)
    require(h.va == send.remote_address && h.rkey == send.rkey && h.dma_length == send.length, "RETH as posted");
  if (has_immediate(send.opcode) && last) require(h.immediate == send.immediate, "immediate as posted");
  if (send.opcode == WrOpcode::kSendInvalidate && last)
    require(h.invalidate_rkey == send.rkey, "the key to invalidate as posted");
  require(desc.retransmission == (next < high), "what was sent before is called a retransmission");
  require(accessible(send, next), "no packet leaves from memory that is not registered");
  require(lost_ == kNone, "nothing is sent behind a local error");
  require(in_flight == 0 || in_flight + request_charge(send, next) <= config.window, "the window holds");

  if (next == una) deadline = config.timeout == kNever ? kNever : now + config.timeout;
  in_flight += request_charge(send, next);
  next = end;
  high = std::max(high, next);
}

void ReferenceQp::on_answer(const wire::Headers& headers, Ps now) {
  const std::uint64_t number = una + (headers.psn - psn(una)) % (1U << 24);
  const std::uint8_t value = headers.syndrome % 32;
  const std::uint8_t kind = headers.syndrome / 32;
  take_credits(headers);
  if (const Send* fetch = first_fetch(); fetch != nullptr && (kind == 0 || kind == 1 || kind == 3)) {
    // Whoever acknowledges more than a READ or atomic that was not answered says that the answer was lost.
    const std::uint64_t due = std::max(una, fetch->first);
    if (number + (kind == 0 ? 1 : 0) > due) {
      advance(due, now);
      if (sending()) on_loss(Point::kImpliedByAck);
      return;
    }
  }
  switch (kind) {
    case 0:  // ACK
      if (number + 1 > next) hits_(Point::kAckPastNext);
      advance(number + 1, now);
      hits_(Point::kAckProgress);
      if (sends_pending() && una > sends_[head_].first) hits_(Point::kAckPartial);
      return;
    case 1:  // RNR NAK
      advance(number, now);
      if (!sending()) return;
      if (waiting_) return hits_(Point::kRnrWhileWaiting);
      if (config.rnr_retry != kForever && rnr_retries_left_-- == 0) return fail_head(WcStatus::kRnrRetryExceeded);
      hits_(Point::kRnr);
      broken_before_wait_ = source_broken();
      go_back();
      waiting_ = true;
      deadline = now + rnr_wait(value);
      return;
    case 3:  // NAK
      if (advance(number, now)) hits_(Point::kSequenceNakProgress);
      if (!sending()) return;
      break;
    default:
      return hits_(Point::kReserved);
  }
  switch (value) {
    case 0:
      return on_loss(Point::kSequenceNak);
    case 1:
      return fail_head(WcStatus::kRemoteInvalidRequestError);
    case 2:
      return fail_head(WcStatus::kRemoteAccessError);
    case 3:
      return fail_head(WcStatus::kRemoteOperationError);
    default:
      return fail_head(WcStatus::kBadResponseError);
  }
}

bool ReferenceQp::advance(std::uint64_t end, Ps now) {
  if (end <= una) return false;
  require(end <= high, "only what was sent can be acknowledged");
  for (std::uint64_t number = una; number < std::min(end, next); ++number) in_flight -= charge(send_of(number), number);
  while (sends_pending() && sends_[head_].end <= end && begun(sends_[head_])) complete_send(WcStatus::kSuccess);
  una = end;
  if (next < una) {
    next = una;
    lost_ = kNone;
  }
  retries_left_ = config.retry_cnt;
  rnr_retries_left_ = config.rnr_retry;
  answered_nak_ = waiting_ = false;
  deadline = next == una || config.timeout == kNever ? kNever : now + config.timeout;
  if (lost_ == head_) fail_head(WcStatus::kLocalProtectionError);
  return true;
}

void ReferenceQp::on_loss(Point point) {
  if (answered_nak_ || waiting_) return hits_(Point::kSequenceNakAgain);
  hits_(point);
  answered_nak_ = true;
  retry();
}

void ReferenceQp::go_back() {
  next = una;
  in_flight = 0;
  deadline = kNever;
  if (lost_ != kNone) hits_(Point::kSourceLostForgotten);
  lost_ = kNone;
}

void ReferenceQp::retry() {
  if (retries_left_-- == 0) return fail_head(WcStatus::kRetryExceeded);
  go_back();
}

void ReferenceQp::on_timer(Ps now) {
  if (now < deadline) return;
  deadline = kNever;
  if (waiting_) {
    waiting_ = false;
    return hits_(Point::kRnrOver);
  }
  hits_(Point::kTimeout);
  answered_nak_ = false;
  retry();
}

void ReferenceQp::on_source_lost(std::uint32_t lost_psn) {
  if (!sending()) return;
  const std::uint64_t number = una + (lost_psn - psn(una)) % (1U << 24);
  if (number >= high) return;
  hits_(Point::kSourceLost);
  const Send& send = send_of(number);
  const std::uint64_t from = std::max(una, send.first);
  if (from > next) return;
  for (std::uint64_t n = from; n < next; ++n) in_flight -= charge(send_of(n), n);
  next = from;
  lost_ = static_cast<std::size_t>(&send - sends_.data());
  if (lost_ == head_) return fail_head(WcStatus::kLocalProtectionError);
  hits_(Point::kSourceLostWaits);
}

void ReferenceQp::fail_head(WcStatus status) {
  // A NAK that also acknowledges all before the oldest request comes second where that one's source is gone, and the
  // engine knows.
  const bool perhaps_protection = status != WcStatus::kLocalProtectionError && source_broken();
  complete_send(status);
  if (perhaps_protection) completions.back().vendor_error = kPerhapsProtection;
  enter_error();
}

void ReferenceQp::complete_send(WcStatus status) {
  const Send& send = sends_[head_++];
  if (status == WcStatus::kSuccess && !send.signaled) return hits_(Point::kSendUnsignaled);
  hits_(send_point(status));
  Completion completion;
  completion.wr_id = send.wr_id;
  completion.status = status;
  constexpr std::array kFetchOpcodes = {WcOpcode::kRead, WcOpcode::kCompareSwap, WcOpcode::kFetchAdd};
  completion.opcode = send.fetch                             ? kFetchOpcodes[static_cast<std::size_t>(send.opcode) - 4]
                      : send.opcode == WrOpcode::kBindWindow ? WcOpcode::kBindWindow
                      : send.opcode == WrOpcode::kLocalInvalidate ? WcOpcode::kLocalInvalidate
                      : is_write(send.opcode)                     ? WcOpcode::kWrite
                                                                  : WcOpcode::kSend;
  completion.byte_len = send.length;
  completion.qp_num = config.qpn;
  completions.push_back(completion);
}

void ReferenceQp::enter_error() {
  hits_(state == QpState::kInit  ? Point::kInitToErr
        : state == QpState::kRtr ? Point::kRtrToErr
        : state == QpState::kRts ? Point::kRtsToErr
        : draining_              ? Point::kDrainingToErr
                                 : Point::kSqdToErr);
  state = QpState::kErr;
  draining_ = false;
  flush();
  if (shared_ == nullptr) return;
  hits_(Point::kLastWqeReached);
  events.push_back(AsyncEvent::kLastWqeReached);
}

void ReferenceQp::flush() {
  while (sends_pending()) complete_send(WcStatus::kFlushError);
  una = next = high;
  in_flight = 0;
  deadline = kNever;
  answered_nak_ = waiting_ = false;
  lost_ = kNone;
  congestion.stop();
  message_ = Message::kNone;
  if (owed != Owed::kNak)
    for (Fetched& fetched : fetched_) fetched.pending = false;
  flush_receives();
}

}  // namespace tensorwire::transport::faults
