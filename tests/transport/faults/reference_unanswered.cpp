#include "reference_unanswered.hpp"

#include <algorithm>

#include "violation.hpp"

namespace tensorwire::transport::faults {

void ReferenceUnanswered::reset(const ReferenceConfig& with) {
  config = with;
  state = QpState::kReset;
  sends_.clear();
  given_ = 0;
  packet_ = 0;
  sent_ = 0;
  lost_ = kNone;
  draining_ = broken_before_drain_ = false;
  forget_receives();
}

void ReferenceUnanswered::doorbell() {
  if (state == QpState::kSqe || state == QpState::kErr) flush_sends();
}

// ---- egress

std::uint32_t ReferenceUnanswered::payload(const Send& send) const noexcept {
  return std::min(send.length - packet_ * config.mtu, config.mtu);
}

std::uint32_t ReferenceUnanswered::packets(const Send& send) const noexcept {
  return send.length == 0 ? 1 : (send.length - 1) / config.mtu + 1;
}

std::uint32_t ReferenceUnanswered::psn() const noexcept {
  return static_cast<std::uint32_t>((config.sq_psn + sent_) % (1U << 24));
}

bool ReferenceUnanswered::ready() const noexcept {
  if (lost_ != kNone || given_ == sends_.size()) return false;
  return state == QpState::kRts || (state == QpState::kSqd && packet_ != 0);
}

void ReferenceUnanswered::check_sent(const TxDesc& desc) const {
  const wire::Headers& h = desc.headers;
  const Send& send = upcoming();
  require(ready(), "only a queue pair that may send does");
  require(!source_broken(), "nothing leaves from memory that is not registered");
  require(h.psn == psn(), "the PSN counts packets");
  require(h.pkey == wire::kDefaultPkey && desc.src_qpn == config.qpn, "a packet is of its queue pair");
  require(!h.ack_req && !desc.retransmission, "nobody answers");
  require(desc.payload_bytes == payload(send) && h.pad == (4 - payload(send) % 4) % 4,
          "a packet carries its share of the message");
}

void ReferenceUnanswered::on_packet_sent() {
  Send& send = sends_[given_];
  if (packet_ == 0) send.first = sent_;
  if (state == QpState::kSqd) hits_(points_.drain_ends);
  ++sent_;
  if (++packet_ != packets(send)) return;
  packet_ = 0;
  ++given_;
}

void ReferenceUnanswered::complete_given() {
  while (given_ != 0 && lost_ != 0) {
    complete_send(WcStatus::kSuccess);
    --given_;
    if (lost_ != kNone) --lost_;
  }
}

void ReferenceUnanswered::on_next_tx() {
  complete_given();
  if (lost_ == 0) fail();
}

void ReferenceUnanswered::on_source_lost(std::uint32_t lost_psn) {
  hits_(points_.source_lost);
  const std::uint32_t back = (psn() - lost_psn) % (1U << 24);
  require(back != 0 && back <= sent_, "only what left can be lost");
  const std::uint64_t number = sent_ - back;
  std::size_t at = given_ + (packet_ == 0 ? 0 : 1);
  while (at != 0 && sends_[at - 1].first > number) --at;
  require(at != 0, "only what the link was given can be lost by it");
  lost_ = std::min(lost_, at - 1);
}

bool ReferenceUnanswered::source_broken() const noexcept {
  if (state == QpState::kSqd && broken_before_drain_) return true;
  return ready() && !accessible(sends_[given_], packet_);
}

bool ReferenceUnanswered::accessible(const Send& send, std::uint32_t packet) const noexcept {
  const std::uint64_t begin = std::uint64_t{packet} * config.mtu;
  const std::uint64_t end = std::min<std::uint64_t>(begin + config.mtu, send.length);
  return send.inline_data || registrations_.permits(send.sges, config.pd, begin, end, 0);
}

void ReferenceUnanswered::fail_source() {
  hits_(points_.source_broken);
  require(given_ == 0, "a local error waits for the messages before it");
  fail();
}

/// The oldest send has failed: the send queue stops, and nothing else.
void ReferenceUnanswered::fail() {
  complete_send(WcStatus::kLocalProtectionError);
  lost_ = kNone;
  given_ = 0;
  packet_ = 0;
  if (state != QpState::kRts && state != QpState::kSqd) return;
  hits_(points_.to_sqe);
  state = QpState::kSqe;
  draining_ = broken_before_drain_ = false;
  flush_sends();
}

void ReferenceUnanswered::flush_sends() {
  const bool noticed = given_ != 0 && lost_ == kNone && given_ != sends_.size() && !accessible(sends_[given_], packet_);
  complete_given();
  if (lost_ == 0) complete_send(WcStatus::kLocalProtectionError);
  lost_ = kNone;
  given_ = 0;
  packet_ = 0;
  // A local error may have been found, and wait for those before it.
  if (noticed) complete_send(WcStatus::kFlushError, kPerhapsProtection);
  while (!sends_.empty()) complete_send(WcStatus::kFlushError);
}

void ReferenceUnanswered::complete_send(WcStatus status, std::uint32_t allowance) {
  const Send send = sends_.front();
  sends_.pop_front();
  if (status == WcStatus::kSuccess && !send.signaled) return hits_(points_.sent_unsignaled);
  hits_(status == WcStatus::kSuccess      ? points_.sent
        : status == WcStatus::kFlushError ? points_.flushed
                                          : points_.protection);
  const bool write = send.opcode == WrOpcode::kWrite || send.opcode == WrOpcode::kWriteImm;
  Completion completion;
  completion.wr_id = send.wr_id;
  completion.status = status;
  completion.opcode = write ? WcOpcode::kWrite : WcOpcode::kSend;
  completion.vendor_error = allowance;
  completion.byte_len = send.length;
  completion.qp_num = config.qpn;
  completions.push_back(completion);
}

// ---- SQD

void ReferenceUnanswered::drain(bool notify) {
  hits_(points_.to_sqd);
  broken_before_drain_ = given_ != 0 && source_broken();
  state = QpState::kSqd;
  draining_ = true;
  wants_drained_event_ = notify;
}

void ReferenceUnanswered::settle_drain() {
  if (!draining_ || state != QpState::kSqd || given_ != 0 || packet_ != 0) return;
  draining_ = broken_before_drain_ = false;
  hits_(points_.drained);
  if (wants_drained_event_) events.push_back(AsyncEvent::kSqDrained);
}

// ---- errors

void ReferenceUnanswered::fail_fatally() {
  enter_error();
  events.push_back(AsyncEvent::kQpFatal);
}

void ReferenceUnanswered::enter_error() {
  hits_(state == QpState::kSqe ? points_.from_sqe_to_error : points_.to_error);
  state = QpState::kErr;
  draining_ = false;
  flush_sends();
  stop_receiving();
  message_ = Message::kNone;
  flush_receives();
  if (shared_ != nullptr) events.push_back(AsyncEvent::kLastWqeReached);
}

}  // namespace tensorwire::transport::faults
