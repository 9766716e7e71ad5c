#include "transport/ud.hpp"

#include "transport/qp.hpp"

namespace tensorwire::transport {

namespace {

constexpr std::uint32_t kPrefixBytes = wire::kNetworkHeaderBytes;

}  // namespace

bool Ud::receives() const noexcept { return can_receive(qp_.state()); }

DropReason Ud::why_not(const wire::Headers& headers, std::uint32_t payload_bytes,
                       const PacketSource& source) const noexcept {
  if (!receives()) return DropReason::kWrongState;
  if (source.whole_messages() || !wire::traits(headers.opcode).deth) return DropReason::kWrongOpcode;
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
                               .hop_limit = source.hop_limit,
                               .flow_label = source.flow_label},
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
