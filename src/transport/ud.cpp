#include "transport/ud.hpp"

#include "transport/qp.hpp"

namespace tensorwire::transport {

namespace {

constexpr std::uint32_t kPrefixBytes = wire::kNetworkHeaderBytes;

}  // namespace

void Ud::start() noexcept {
  next_psn_ = qp_.attributes().sq_psn;
  next_index_ = qp_.send_queue().head();
}

void Ud::stop() noexcept {
  next_index_ = qp_.send_queue().head();
  failure_ = WcStatus::kSuccess;
}

void Ud::flush() noexcept {
  complete_given();
  qp_.requester.flush();
  stop();
}

// ---- egress

void Ud::schedule() noexcept {
  if (qp_.state() == QpState::kSqe) return flush();
  if (ready()) {
    core_.scheduler.data_ready(qp_);
  } else {
    core_.scheduler.data_done(qp_);
  }
}

bool Ud::ready() const noexcept {
  return qp_.state() == QpState::kRts && failure_ == WcStatus::kSuccess && next_index_ != qp_.send_queue().posted();
}

std::uint32_t Ud::next_payload() const noexcept { return qp_.send_queue().at(next_index_).length; }

bool Ud::build(TxDesc& out) noexcept {
  const SendWqe& wqe = qp_.send_queue().at(next_index_);
  const WcStatus gathered = qp_.requester.gather(next_index_, 0, wqe.length, out);
  if (gathered != WcStatus::kSuccess) {
    failed_index_ = next_index_;
    fail_send(gathered);
    return false;
  }
  const DatagramTarget& target = qp_.send_queue().target(next_index_);
  wire::Headers& h = out.headers;
  h = {};
  h.opcode = wqe.opcode == WrOpcode::kSendImm ? wire::Opcode::kUdSendOnlyImm : wire::Opcode::kUdSendOnly;
  h.solicited = wqe.solicited;
  h.pad = static_cast<std::uint8_t>(-wqe.length & 3U);
  h.dest_qpn = target.qpn;
  h.psn = next_psn_;
  h.qkey = (target.qkey & kPrivilegedQkey) != 0 ? qp_.attributes().qkey : target.qkey;
  h.src_qpn = qp_.qpn();
  h.immediate = wqe.immediate;

  out.av = &target.address.av;
  out.path = qp_.path();
  out.src_qpn = qp_.qpn();
  out.payload_bytes = wqe.length;
  out.retransmission = false;

  ++core_.counters.tx_packets;
  core_.counters.tx_bytes += wqe.length;
  next_psn_ = wire::psn_add(next_psn_, 1);
  ++next_index_;
  core_.scheduler.given_out(qp_);
  return true;
}

void Ud::complete_given() noexcept {
  while (qp_.send_queue().head() != next_index_) {
    if (failure_ != WcStatus::kSuccess && qp_.send_queue().head() == failed_index_) break;
    qp_.requester.complete_head(WcStatus::kSuccess);
  }
  if (failure_ != WcStatus::kSuccess) fail_send(failure_);
}

/// At once when the failed entry is the oldest, else when those before it, which are with the link, have completed.
void Ud::fail_send(WcStatus status) noexcept {
  failure_ = status;
  core_.scheduler.data_done(qp_);
  if (failed_index_ != qp_.send_queue().head()) return;
  qp_.requester.complete_head(status);
  failure_ = WcStatus::kSuccess;
  next_index_ = qp_.send_queue().head();
  if (qp_.state() == QpState::kRts) qp_.enter_send_error();
}

void Ud::source_lost(std::uint32_t psn) noexcept {
  const std::int32_t back = wire::psn_diff(next_psn_, psn);
  const std::uint32_t with_link = next_index_ - qp_.send_queue().head();
  if (back <= 0 || static_cast<std::uint32_t>(back) > with_link) return;
  const std::uint32_t index = next_index_ - static_cast<std::uint32_t>(back);
  if (failure_ != WcStatus::kSuccess && index - failed_index_ < with_link) return;  // the earlier of two counts
  // Only noted: the link still reads the packets that it was given together with this one.
  failed_index_ = index;
  failure_ = WcStatus::kLocalProtectionError;
  core_.scheduler.data_done(qp_);
}

// ---- ingress

bool Ud::receives() const noexcept {
  const QpState state = qp_.state();
  return state == QpState::kRtr || state == QpState::kRts || state == QpState::kSqe;
}

DropReason Ud::why_not(const wire::Headers& headers, std::uint32_t payload_bytes,
                       const PacketSource& source) const noexcept {
  if (!receives()) return DropReason::kWrongState;
  // Datagrams travel as packets only; a link of whole messages has no business with them.
  const bool packets = source.mtu <= mtu_bytes(MtuCode::k4096);
  if (!packets || !wire::traits(headers.opcode).deth) return DropReason::kWrongOpcode;
  if (headers.qkey != qp_.attributes().qkey) {
    ++core_.counters.qkey_viol_cntr;
    return DropReason::kWrongQkey;
  }
  if (payload_bytes > source.mtu) return DropReason::kBadLength;
  if (qp_.receive_queue().empty()) {
    ++core_.counters.out_of_buffer;
    return DropReason::kNoReceive;
  }
  if (std::uint64_t{kPrefixBytes} + payload_bytes > qp_.receive_queue().front().length) {
    ++core_.counters.resp_local_length_error;
    return DropReason::kNoReceive;
  }
  return DropReason::kNone;
}

void Ud::classify(const wire::Headers& headers, std::uint32_t payload_bytes, const PacketSource& source,
                  RxVerdict& verdict) const noexcept {
  verdict.drop = why_not(headers, payload_bytes, source);
  if (verdict.drop != DropReason::kNone) return;
  const RxPlan plan = qp_.responder.scatter(0, kPrefixBytes + payload_bytes, verdict);
  verdict.qp = &qp_;
  verdict.plan = static_cast<std::uint8_t>(plan);
  verdict.action = RxAction::kPlace;
  if (plan != RxPlan::kExecute) {
    verdict.action = RxAction::kControl;
    verdict.piece_count = 0;
    return;
  }
  verdict.prefix_bytes = kPrefixBytes;
  const std::size_t datagram = wire::header_bytes(headers.opcode) + payload_bytes + headers.pad + wire::kIcrcBytes;
  wire::encode_network_header({.source = source.address,
                               .destination = source.destination,
                               .traffic_class = source.traffic_class,
                               .hop_limit = source.hop_limit},
                              datagram, verdict.prefix);
}

void Ud::commit(RxPlan plan, const wire::Headers& headers, std::uint32_t payload_bytes) noexcept {
  if (!receives() || qp_.receive_queue().empty()) return;  // another packet, or an error, was faster
  if (plan != RxPlan::kExecute) return fail_receive(headers);
  ++core_.counters.rx_packets;
  core_.counters.rx_bytes += payload_bytes;
  complete_receive(headers, WcStatus::kSuccess, payload_bytes);
}

void Ud::reject(const wire::Headers& headers) noexcept {
  if (receives() && !qp_.receive_queue().empty()) fail_receive(headers);
}

void Ud::fail_receive(const wire::Headers& headers) noexcept {
  complete_receive(headers, WcStatus::kLocalProtectionError, 0);
  qp_.enter_error();
}

void Ud::complete_receive(const wire::Headers& headers, WcStatus status, std::uint32_t payload_bytes) noexcept {
  Completion completion;
  completion.wr_id = qp_.receive_queue().front().wr_id;
  completion.status = status;
  completion.opcode = WcOpcode::kRecv;
  completion.byte_len = kPrefixBytes + payload_bytes;
  completion.qp_num = qp_.qpn();
  completion.src_qp = headers.src_qpn;
  completion.flags = kWcWithGrh;
  if (wire::traits(headers.opcode).immediate) {
    completion.immediate = headers.immediate;
    completion.flags |= kWcWithImm;
  }
  if (status != WcStatus::kSuccess) ++core_.counters.resp_cqe_error;
  qp_.receive_queue().pop();
  qp_.complete(*qp_.init().recv_cq, completion, headers.solicited);
}

}  // namespace tensorwire::transport
