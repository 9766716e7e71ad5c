#include "reference_ud.hpp"

#include <algorithm>
#include <numeric>

#include "violation.hpp"

namespace tensorwire::transport::faults {

void ReferenceUd::reset(const Config& with) {
  config = with;
  state = QpState::kReset;
  sends_.clear();
  given_ = 0;
  sent_ = 0;
  lost_ = kNone;
  receives_.clear();
}

// ---- egress

void ReferenceUd::post_send(const Send& send) { sends_.push_back(send); }

void ReferenceUd::doorbell() {
  if (state == QpState::kSqe || state == QpState::kErr) flush_sends();
}

void ReferenceUd::complete_given() {
  while (given_ != 0 && lost_ != 0) {
    complete_send(WcStatus::kSuccess);
    --given_;
    if (lost_ != kNone) --lost_;
  }
}

void ReferenceUd::on_next_tx() {
  complete_given();
  if (lost_ == 0) fail();
}

void ReferenceUd::on_source_lost(std::uint32_t psn) {
  hits_(Point::kUdSourceLost);
  const std::uint32_t back = (config.sq_psn + sent_ - psn) % (1U << 24);
  require(back != 0 && back <= given_, "only what the link was given can be lost by it");
  lost_ = std::min(lost_, given_ - back);
}

bool ReferenceUd::source_broken() const noexcept { return ready() && inaccessible(sends_[given_]); }

bool ReferenceUd::inaccessible(const Send& send) const noexcept {
  return !send.inline_data && std::any_of(send.sges.span().begin(), send.sges.span().end(), [&](const Sge& sge) {
    return sge.length != 0 &&
           registrations_.check(sge.lkey, config.pd, sge.address, sge.length, 0) != AccessResult::kOk;
  });
}

void ReferenceUd::fail_source() {
  hits_(Point::kUdSourceBroken);
  require(given_ == 0, "a local error waits for the datagrams before it");
  fail();
}

/// The oldest send has failed: the send queue stops, and nothing else.
void ReferenceUd::fail() {
  complete_send(WcStatus::kLocalProtectionError);
  lost_ = kNone;
  given_ = 0;
  if (state != QpState::kRts) return;
  hits_(Point::kRtsToSqe);
  state = QpState::kSqe;
  flush_sends();
}

void ReferenceUd::flush_sends() {
  const bool noticed = given_ != 0 && lost_ == kNone && given_ != sends_.size() && inaccessible(sends_[given_]);
  complete_given();
  if (lost_ == 0) complete_send(WcStatus::kLocalProtectionError);
  lost_ = kNone;
  given_ = 0;
  // A local error may have been found, and wait for those before it.
  if (noticed) complete_send(WcStatus::kFlushError, kPerhapsProtection);
  while (!sends_.empty()) complete_send(WcStatus::kFlushError);
}

bool ReferenceUd::ready() const noexcept { return state == QpState::kRts && lost_ == kNone && given_ != sends_.size(); }

void ReferenceUd::on_sent(const TxDesc& desc) {
  const wire::Headers& h = desc.headers;
  require(ready(), "only a queue pair in RTS sends datagrams");
  const Send& send = upcoming();
  require(!source_broken(), "no datagram leaves from memory that is not registered");
  require(h.opcode == (send.immediate_follows ? wire::Opcode::kUdSendOnlyImm : wire::Opcode::kUdSendOnly),
          "the opcode fits the datagram");
  require(h.dest_qpn == send.dest_qpn && h.pkey == wire::kDefaultPkey, "a datagram goes to the queue pair it names");
  require(h.qkey == ((send.qkey & kPrivilegedQkey) != 0 ? config.qkey : send.qkey),
          "a datagram carries the Q_Key as posted");
  require(h.src_qpn == config.qpn && desc.src_qpn == config.qpn, "a datagram names its sender");
  require(h.psn == (config.sq_psn + sent_) % (1U << 24), "the PSN counts datagrams");
  require(!h.ack_req && !desc.retransmission, "nobody answers a datagram");
  require(h.solicited == send.solicited, "the solicited bit as posted");
  require(!send.immediate_follows || h.immediate == send.immediate, "immediate as posted");
  require(desc.payload_bytes == send.length && h.pad == (4 - send.length % 4) % 4, "a datagram is one packet");
  require(desc.av->remote == send.av.remote && desc.av->local == send.av.local &&
              desc.av->traffic_class == send.av.traffic_class && desc.av->udp_source_port == send.av.udp_source_port,
          "a datagram goes to the address as it was when it was posted");
  ++sent_;
  ++given_;
}

void ReferenceUd::complete_send(WcStatus status, std::uint32_t allowance) {
  const Send send = sends_.front();
  sends_.pop_front();
  if (status == WcStatus::kSuccess && !send.signaled) return hits_(Point::kUdSendUnsignaled);
  hits_(status == WcStatus::kSuccess      ? Point::kUdSendSuccess
        : status == WcStatus::kFlushError ? Point::kUdSendFlushed
                                          : Point::kUdSendProtection);
  Completion completion;
  completion.wr_id = send.wr_id;
  completion.status = status;
  completion.opcode = WcOpcode::kSend;
  completion.vendor_error = allowance;
  completion.byte_len = send.length;
  completion.qp_num = config.qpn;
  completions.push_back(completion);
}

// ---- ingress

const ReferenceReceive* ReferenceUd::front_receive() const noexcept {
  if (shared_ != nullptr) return shared_->front();
  return receives_.empty() ? nullptr : &receives_.front();
}

Judgement ReferenceUd::judge(const wire::Headers& headers, std::uint32_t bytes, const PacketSource& source) const {
  Judgement judgement;
  const auto drop = [&](DropReason reason, Point point = Point::kCount) {
    judgement.drop = reason;
    judgement.point = point;
    return judgement;
  };
  if (headers.pkey != 0xffff && headers.pkey != 0x7fff) return drop(DropReason::kWrongPkey);
  if (state == QpState::kReset || state == QpState::kInit || state == QpState::kErr)
    return drop(DropReason::kWrongState, Point::kUdWrongState);
  if (!wire::traits(headers.opcode).deth) return drop(DropReason::kWrongOpcode, Point::kUdWrongOpcode);
  if (headers.qkey != config.qkey) return drop(DropReason::kWrongQkey);
  if (bytes > source.mtu) return drop(DropReason::kBadLength, Point::kUdBadLength);
  const ReferenceReceive* receive = front_receive();
  if (receive == nullptr) return drop(DropReason::kNoReceive, Point::kUdNoReceive);
  if (kHeaderBytes + bytes > receive->capacity) return drop(DropReason::kNoReceive, Point::kUdTooSmall);

  judgement.drop = DropReason::kNone;
  judgement.address = receive->sges.items[0].address;  // its elements are adjacent
  judgement.bytes = kHeaderBytes + bytes;
  judgement.action = RxAction::kPlace;
  judgement.plan = RxPlan::kExecute;
  const PdId pd = shared_ != nullptr ? shared_->pd : config.pd;
  std::uint64_t end = judgement.bytes;
  for (const Sge& sge : receive->sges.span()) {
    if (end != 0 && sge.length != 0 &&
        registrations_.check(sge.lkey, pd, sge.address, sge.length, kAccessLocalWrite) != AccessResult::kOk) {
      judgement.action = RxAction::kControl;
      judgement.plan = RxPlan::kLocalProtection;
    }
    end -= std::min<std::uint64_t>(end, sge.length);
  }
  return judgement;
}

void ReferenceUd::commit(const Judgement& judgement, const wire::Headers& headers, std::uint32_t bytes) {
  if (judgement.plan == RxPlan::kExecute) {
    hits_(Point::kUdReceived);
    return complete_receive(headers, WcStatus::kSuccess, bytes);
  }
  reject(headers);
}

/// A buffer of our own that may not be written, or is gone.
void ReferenceUd::reject(const wire::Headers& headers) {
  hits_(Point::kUdReceiveProtection);
  complete_receive(headers, WcStatus::kLocalProtectionError, 0);
  enter_error();
}

void ReferenceUd::complete_receive(const wire::Headers& headers, WcStatus status, std::uint32_t bytes) {
  Completion completion;
  if (shared_ != nullptr) {
    completion.wr_id = shared_->take().wr_id;
  } else {
    completion.wr_id = receives_.front().wr_id;
    receives_.pop_front();
  }
  completion.status = status;
  completion.opcode = WcOpcode::kRecv;
  completion.byte_len = kHeaderBytes + bytes;
  completion.qp_num = config.qpn;
  completion.src_qp = headers.src_qpn;
  completion.flags = kWcWithGrh;
  if (headers.opcode == wire::Opcode::kUdSendOnlyImm) {
    completion.immediate = headers.immediate;
    completion.flags |= kWcWithImm;
  }
  completions.push_back(completion);
}

void ReferenceUd::fail_fatally() {
  enter_error();
  events.push_back(AsyncEvent::kQpFatal);
}

void ReferenceUd::enter_error() {
  hits_(state == QpState::kSqe ? Point::kSqeToErr : Point::kUdToErr);
  state = QpState::kErr;
  flush_sends();
  for (; !receives_.empty(); receives_.pop_front()) {
    Completion completion;
    completion.wr_id = receives_.front().wr_id;
    completion.status = WcStatus::kFlushError;
    completion.opcode = WcOpcode::kRecv;
    completion.qp_num = config.qpn;
    completions.push_back(completion);
  }
  if (shared_ != nullptr) events.push_back(AsyncEvent::kLastWqeReached);
}

std::array<std::byte, ReferenceUd::kHeaderBytes> ReferenceUd::network_header(const wire::Headers& headers,
                                                                             std::uint32_t bytes,
                                                                             const PacketSource& source) {
  std::array<std::byte, kHeaderBytes> out{};
  const auto put = [&out](std::size_t at, unsigned value) { out[at] = static_cast<std::byte>(value & 0xff); };
  const auto put_16 = [&put](std::size_t at, std::size_t value) {
    put(at, static_cast<unsigned>(value >> 8));
    put(at + 1, static_cast<unsigned>(value));
  };
  // UDP header, BTH, DETH, immediate, payload, pad, ICRC.
  const bool immediate = headers.opcode == wire::Opcode::kUdSendOnlyImm;
  const std::size_t udp = 8 + 12 + 8 + (immediate ? 4 : 0) + (bytes + 3) / 4 * 4 + 4;
  if (!source.address.is_ipv4()) {
    put(0, 0x60 | source.traffic_class >> 4);
    put(1, static_cast<unsigned>(source.traffic_class) << 4);
    put_16(4, udp);
    put(6, 17);
    put(7, source.hop_limit);
    for (std::size_t i = 0; i < 16; ++i) {
      put(8 + i, source.address.bytes[i]);
      put(24 + i, source.destination.bytes[i]);
    }
    return out;
  }
  put(20, 0x45);
  put(21, source.traffic_class);
  put_16(22, 20 + udp);
  put_16(26, 0x4000);  // do not fragment
  put(28, source.hop_limit);
  put(29, 17);
  for (std::size_t i = 0; i < 4; ++i) {
    put(32 + i, source.address.bytes[12 + i]);
    put(36 + i, source.destination.bytes[12 + i]);
  }
  unsigned sum = 0;
  for (std::size_t i = 20; i < 40; i += 2)
    sum += std::to_integer<unsigned>(out[i]) << 8 | std::to_integer<unsigned>(out[i + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  put_16(30, ~sum & 0xffff);
  return out;
}

}  // namespace tensorwire::transport::faults
