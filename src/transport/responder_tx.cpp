// Responder, egress: READ responses, atomic acknowledges, ACKs and NAKs as packets.
#include <algorithm>

#include "transport/qp.hpp"
#include "transport/responder.hpp"

namespace tensorwire::transport {

using wire::NakCode;
using wire::Opcode;

namespace {

constexpr std::uint8_t kAck = wire::kSyndromeAck | wire::kCreditsInvalid;

}  // namespace

void Responder::address_to_peer(TxDesc& out) const noexcept {
  const QpAttr& attr = qp_.attributes();
  out.headers = {};
  out.headers.dest_qpn = attr.dest_qpn;
  out.headers.msn = msn_;
  out.av = &attr.av;
  out.path = qp_.path();
  out.src_qpn = qp_.qpn();
  out.payload_bytes = 0;
  out.retransmission = false;
  out.inline_pieces = false;
  out.piece_count = 0;
}

void Responder::schedule() noexcept {
  if (resources_.pending()) {
    if (!qp_.paced()) core_.scheduler.reply_ready(qp_);
  } else if (owed_ != Owed::kNothing) {
    core_.scheduler.control_ready(qp_);
  }
}

void Responder::build_control(TxDesc& out) noexcept {
  address_to_peer(out);
  out.headers.opcode = Opcode::kRcAck;
  out.headers.psn = owed_ == Owed::kAck ? wire::psn_add(expected_psn_, wire::kPsnMask) : owed_psn_;  // the one before
  out.headers.syndrome = owed_ == Owed::kNak ? nak_syndrome_ : kAck;
  unacknowledged_ = 0;
  owed_ = Owed::kNothing;
  ++core_.counters.tx_packets;
}

std::uint32_t Responder::next_reply_payload() noexcept {
  const FetchRecord& record = resources_.oldest_pending();
  return std::min(record.reply_length - record.reply_sent * mtu_, mtu_);
}

// The region is looked up for every packet: it may be deregistered, or the window closed, while the answer leaves. A
// repetition then just ends: whoever has had the answer may have closed it himself, with the request still on its way
// a second time; and who has not will ask until his retries are spent.
bool Responder::build_reply(TxDesc& out) noexcept {
  FetchRecord& record = resources_.oldest_pending();
  const std::uint32_t packet = record.reply_first + record.reply_sent;
  const std::uint32_t psn = psn_of(record.position + packet);
  const std::uint32_t bytes = next_reply_payload();
  const bool first = record.reply_sent == 0;
  const bool last = record.reply_sent + 1 == packets_of_message(record.reply_length, mtu_);

  address_to_peer(out);
  if (bytes != 0) {
    const std::uint64_t from = record.va + std::uint64_t{packet} * mtu_;
    if (check_remote(record.rkey, from, bytes, kAccessRemoteRead, out.pieces[0]) != AccessResult::kOk) {
      if (record.answered) {
        finish_reply(record);
      } else {
        ++core_.counters.resp_remote_access_errors;
        fail_reply(NakCode::kRemoteAccess, psn);
      }
      return false;
    }
    out.piece_count = 1;
  }
  if (record.is_read()) {
    out.headers.opcode = first ? (last ? Opcode::kRcReadResponseOnly : Opcode::kRcReadResponseFirst)
                               : (last ? Opcode::kRcReadResponseLast : Opcode::kRcReadResponseMiddle);
  } else {
    out.headers.opcode = Opcode::kRcAtomicAck;
    out.headers.original = record.original;
  }
  out.headers.syndrome = kAck;
  out.headers.pad = static_cast<std::uint8_t>(-bytes & 3U);
  out.headers.psn = psn;
  out.payload_bytes = bytes;
  out.retransmission = record.answered;
  ++core_.counters.tx_packets;
  core_.counters.tx_bytes += bytes;

  ++record.reply_sent;
  if (last) finish_reply(record);
  return true;
}

void Responder::finish_reply(FetchRecord& record) noexcept {
  resources_.finish_reply(record);
  if (resources_.pending()) return;
  core_.scheduler.replies_done(qp_);
  schedule();
}

void Responder::source_lost(std::uint32_t psn) noexcept {
  if (can_receive(qp_.state())) fail_reply(NakCode::kRemoteOperational, psn);
}

/// The NAK stands in the place of the response that cannot be made; nothing after it is answered.
void Responder::fail_reply(NakCode code, std::uint32_t psn) noexcept {
  const bool failed_before = qp_.state() == QpState::kErr;  // by a request after it; its event was raised then
  resources_.drop_replies();
  core_.scheduler.replies_done(qp_);
  refuse(static_cast<std::uint8_t>(wire::kSyndromeNak | static_cast<std::uint8_t>(code)));
  owed_psn_ = psn;
  qp_.enter_error();
  if (!failed_before) qp_.raise(AsyncEvent::kQpAccessError);
}

}  // namespace tensorwire::transport
