#include "reference_uc.hpp"

#include "violation.hpp"

namespace tensorwire::transport::faults {
namespace {

constexpr UnansweredPoints kUcPoints = {.to_sqe = Point::kUcRtsToSqe,
                                        .from_sqe_to_error = Point::kUcSqeToErr,
                                        .to_error = Point::kUcToErr,
                                        .to_sqd = Point::kUcRtsToSqd,
                                        .drained = Point::kUcDrained,
                                        .drain_ends = Point::kUcDrainEnds,
                                        .source_lost = Point::kUcSourceLost,
                                        .source_broken = Point::kUcSourceBroken,
                                        .sent = Point::kUcSendSuccess,
                                        .sent_unsignaled = Point::kUcSendUnsignaled,
                                        .flushed = Point::kUcSendFlushed,
                                        .protection = Point::kUcSendProtection};

/// SENDs are opcodes 0x20 to 0x25, WRITEs 0x26 to 0x2b, in the order of RC's.
constexpr unsigned kService = 0x20;

Point point_of(RxPlan plan) {
  switch (plan) {
    case RxPlan::kExecute:
      return Point::kUcExecute;
    case RxPlan::kNotReady:
      return Point::kUcNoReceive;
    case RxPlan::kTooLong:
      return Point::kUcTooLong;
    case RxPlan::kLocalProtection:
      return Point::kUcReceiveProtection;
    case RxPlan::kRemoteAccess:
      return Point::kUcAccess;
    default:
      return Point::kUcReth;
  }
}

}  // namespace

ReferenceUc::ReferenceUc(Registrations& registrations, Hits& hits)
    : ReferenceUnanswered(registrations, hits, kUcPoints), congestion(hits) {}

void ReferenceUc::start(const ReferenceConfig& with) {
  reset(with);
  congestion.reset(with.dcqcn);
  expected_ = with.rq_psn;
  established_ = false;
}

void ReferenceUc::on_sent(const TxDesc& desc) {
  check_sent(desc);
  const wire::Headers& h = desc.headers;
  const Send& send = upcoming();
  const bool first = packet() == 0;
  const bool last = packet() + 1 == packets(send);
  const bool write = send.opcode == WrOpcode::kWrite || send.opcode == WrOpcode::kWriteImm;
  const bool immediate = last && (send.opcode == WrOpcode::kSendImm || send.opcode == WrOpcode::kWriteImm);
  const unsigned place = last ? (first ? 4 : 2) : (first ? 0 : 1);
  require(static_cast<unsigned>(h.opcode) == kService + (write ? 6 : 0) + place + (immediate ? 1 : 0),
          "the opcode fits the place in the message");
  require(h.dest_qpn == config.peer_qpn && desc.av->remote == config.peer, "a message goes to the peer");
  require(h.solicited == (last && send.solicited && send.opcode != WrOpcode::kWrite),
          "the solicited bit is on the last");
  require(!immediate || h.immediate == send.immediate, "immediate as posted");
  require(!write || !first || (h.va == send.remote_address && h.rkey == send.rkey && h.dma_length == send.length),
          "RETH as posted");
  on_packet_sent();
}

Judgement ReferenceUc::judge(const wire::Headers& headers, std::uint32_t bytes, const PacketSource& source) const {
  const auto drop = [](DropReason reason) {
    Judgement judgement;
    judgement.drop = reason;
    return judgement;
  };
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  const bool sends = state == QpState::kRts || state == QpState::kSqd;
  const bool receives = sends || state == QpState::kRtr || state == QpState::kSqe;
  if (traits.response ? !sends : !receives) return drop(DropReason::kWrongState);
  if (source.address != config.peer) return drop(DropReason::kWrongSource);
  if (headers.pkey != 0xffff && headers.pkey != 0x7fff) return drop(DropReason::kWrongPkey);
  const bool cnp = headers.opcode == wire::Opcode::kCnp;
  const bool by_ring = source.mtu > mtu_bytes(MtuCode::k4096);  // which carries what is acknowledged
  if (!traits.known || (!cnp && (by_ring || (static_cast<unsigned>(headers.opcode) & 0xe0) != kService)))
    return drop(DropReason::kWrongOpcode);
  if (bytes > source.mtu) return drop(DropReason::kBadLength);

  Judgement judgement;
  judgement.action = RxAction::kControl;
  if (cnp) {
    judgement.plan = RxPlan::kCongestion;
    judgement.point = Point::kCongestion;
  } else {
    judge_message(headers, bytes, judgement);
  }
  return judgement;
}

void ReferenceUc::judge_message(const wire::Headers& headers, std::uint32_t bytes, Judgement& judgement) const {
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  judgement.plan = RxPlan::kGap;
  judgement.point = headers.psn != expected_ ? Point::kUcGap : Point::kUcOrder;
  if (!traits.begins() && (headers.psn != expected_ || message_ != message_of(traits))) return;
  judgement.plan = RxPlan::kInvalidRequest;
  judgement.point = Point::kUcLength;
  if (!length_fits(traits, bytes, config.mtu)) return;
  judgement.bytes = bytes;
  if (traits.send) {
    judge_send(headers, bytes, judgement);
  } else {
    judge_write(headers, bytes, judgement);
  }
  judgement.point = point_of(judgement.plan);
  if (judgement.plan == RxPlan::kExecute && bytes != 0) judgement.action = RxAction::kPlace;
}

void ReferenceUc::commit(const Judgement& judgement, const wire::Headers& headers, std::uint32_t bytes) {
  if (judgement.plan == RxPlan::kCongestion)
    return hits_(config.dcqcn.enabled ? Point::kUcCnpHeeded : Point::kCnpIgnored);
  hits_(judgement.point);
  if (judgement.plan == RxPlan::kExecute) return execute(headers, bytes);
  message_ = Message::kNone;
  if (judgement.plan == RxPlan::kLocalProtection) reject(headers);
}

void ReferenceUc::execute(const wire::Headers& headers, std::uint32_t bytes) {
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  if (!established_ && state == QpState::kRtr) {
    hits_(Point::kEstablished);
    events.push_back(AsyncEvent::kCommEstablished);
  }
  established_ = true;
  if (traits.begins() && headers.psn != expected_) hits_(Point::kUcAnew);
  if (traits.begins() && message_ != Message::kNone) hits_(Point::kUcAbandoned);
  if (traits.begins() && traits.send && holds()) hits_(Point::kUcHeldLeft);
  expected_ = (headers.psn + 1) % (1U << 24);
  if (!take(headers, bytes)) return;
  if (traits.send || traits.immediate) complete_receive(headers, WcStatus::kSuccess, done_);
}

/// Of a receive it is an error of this queue pair, of a WRITE one more reason for silence.
void ReferenceUc::reject(const wire::Headers& headers) {
  message_ = Message::kNone;
  if (!wire::traits(headers.opcode).send) return hits_(Point::kUcMemoryGone);
  complete_receive(headers, WcStatus::kLocalProtectionError, 0);
  enter_error();
}

}  // namespace tensorwire::transport::faults
