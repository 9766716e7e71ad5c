#include "reference_ud.hpp"

#include <numeric>

#include "violation.hpp"

namespace tensorwire::transport::faults {
namespace {

constexpr UnansweredPoints kUdPoints = {.to_sqe = Point::kRtsToSqe,
                                        .from_sqe_to_error = Point::kSqeToErr,
                                        .to_error = Point::kUdToErr,
                                        .to_sqd = Point::kUdRtsToSqd,
                                        .drained = Point::kUdDrained,
                                        .drain_ends = Point::kUdDrained,
                                        .source_lost = Point::kUdSourceLost,
                                        .source_broken = Point::kUdSourceBroken,
                                        .sent = Point::kUdSendSuccess,
                                        .sent_unsignaled = Point::kUdSendUnsignaled,
                                        .flushed = Point::kUdSendFlushed,
                                        .protection = Point::kUdSendProtection};

}  // namespace

ReferenceUd::ReferenceUd(Registrations& registrations, Hits& hits)
    : ReferenceUnanswered(registrations, hits, kUdPoints) {}

void ReferenceUd::on_sent(const TxDesc& desc) {
  check_sent(desc);
  const wire::Headers& h = desc.headers;
  const Send& send = upcoming();
  const bool immediate = send.opcode == WrOpcode::kSendImm;
  require(h.opcode == (immediate ? wire::Opcode::kUdSendOnlyImm : wire::Opcode::kUdSendOnly),
          "the opcode fits the datagram");
  require(h.dest_qpn == send.dest_qpn, "a datagram goes to the queue pair it names");
  require(h.qkey == ((send.qkey & kPrivilegedQkey) != 0 ? config.qkey : send.qkey),
          "a datagram carries the Q_Key as posted");
  require(h.src_qpn == config.qpn, "a datagram names its sender");
  require(h.solicited == send.solicited, "the solicited bit as posted");
  require(!immediate || h.immediate == send.immediate, "immediate as posted");
  require(desc.payload_bytes == send.length, "a datagram is one packet");
  require(desc.av->remote == send.av.remote && desc.av->local == send.av.local &&
              desc.av->traffic_class == send.av.traffic_class && desc.av->udp_source_port == send.av.udp_source_port,
          "a datagram goes to the address as it was when it was posted");
  on_packet_sent();
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
  if (!registrations_.permits(receive->sges, receive_domain(), 0, judgement.bytes, kAccessLocalWrite)) {
    judgement.action = RxAction::kControl;
    judgement.plan = RxPlan::kLocalProtection;
  }
  return judgement;
}

void ReferenceUd::commit(const Judgement& judgement, const wire::Headers& headers, std::uint32_t bytes) {
  if (judgement.plan == RxPlan::kExecute) {
    hits_(Point::kUdReceived);
    return complete_datagram(headers, WcStatus::kSuccess, bytes);
  }
  reject(headers);
}

/// A buffer of our own that may not be written, or is gone.
void ReferenceUd::reject(const wire::Headers& headers) {
  hits_(Point::kUdReceiveProtection);
  complete_datagram(headers, WcStatus::kLocalProtectionError, 0);
  enter_error();
}

void ReferenceUd::complete_datagram(const wire::Headers& headers, WcStatus status, std::uint32_t bytes) {
  Completion completion;
  completion.wr_id = take_receive().wr_id;
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
