// Responder, judging: the checks of the specification in its order (IB specification vol. 1, 9.7.4): PSN, opcode
// sequence, lengths, receive WQE, memory. (State, source, P_Key and opcode were checked by the engine.)
#include <algorithm>

#include "transport/qp.hpp"
#include "transport/responder.hpp"

namespace tensorwire::transport {

using wire::Position;

void Responder::classify(const wire::Headers& headers, std::uint32_t payload_bytes, std::uint32_t source_mtu,
                         RxVerdict& verdict) const noexcept {
  const std::int32_t distance = wire::psn_diff(headers.psn, expected_psn_);
  if (distance > 0 && refused_) {
    verdict.drop = DropReason::kOutOfSequence;
    return;
  }
  RxPlan plan = RxPlan::kDuplicate;
  if (distance > 0) {
    plan = RxPlan::kGap;
  } else if (distance == 0) {
    // A link that carries whole messages says so by its own MTU; but there, too, a sender may cut one (MemoryRegion::
    // staged).
    const bool only = wire::traits(headers.opcode).position == Position::kOnly;
    const bool whole = only && source_mtu > mtu_bytes(MtuCode::k4096);
    plan = judge(headers, payload_bytes, whole ? source_mtu : mtu_bytes(qp_.attributes().path_mtu), verdict);
  }
  verdict.plan = static_cast<std::uint8_t>(plan);
  if (plan != RxPlan::kExecute) verdict.piece_count = 0;
  verdict.action = verdict.piece_count != 0 ? RxAction::kPlace : RxAction::kControl;
}

RxPlan Responder::judge(const wire::Headers& headers, std::uint32_t bytes, std::uint32_t limit,
                        RxVerdict& verdict) const noexcept {
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  if (!in_order(traits) || !length_fits(traits.position, bytes, limit)) return RxPlan::kInvalidRequest;
  if (traits.fetch) return bytes != 0 ? RxPlan::kInvalidRequest : judge_fetch(headers);
  // A corrupt First/Only header must not choose an address: only later packets may be copied before their ICRC.
  verdict.verify_first = traits.begins();
  return traits.send ? judge_send(traits, headers, bytes, verdict) : judge_write(traits, headers, bytes, verdict);
}

bool Responder::in_order(const wire::OpcodeTraits& traits) const noexcept {
  if (traits.begins()) return message_ == Message::kNone;
  return message_ == (traits.send ? Message::kSend : Message::kWrite);
}

/// First and Middle carry exactly the MTU, Last 1 byte to the MTU, Only 0 bytes to the MTU.
bool Responder::length_fits(Position position, std::uint32_t bytes, std::uint32_t limit) const noexcept {
  switch (position) {
    case Position::kFirst:
    case Position::kMiddle:
      return bytes == limit;
    case Position::kLast:
      return bytes >= 1 && bytes <= limit;
    default:
      return bytes <= limit;
  }
}

RxPlan Responder::judge_send(const wire::OpcodeTraits& traits, const wire::Headers& headers, std::uint32_t bytes,
                             RxVerdict& verdict) const noexcept {
  const bool first = traits.begins();
  if (qp_.receive_queue().empty()) return RxPlan::kNotReady;  // only ever at the first packet
  const std::uint64_t offset = first ? 0 : done_bytes_;
  if (offset + bytes > std::min<std::uint64_t>(qp_.receive_queue().front().length, kMaxMessageBytes))
    return RxPlan::kTooLong;
  if (traits.invalidate && !core_.memory.can_invalidate(headers.invalidate_rkey, qp_.init().pd, qp_.qpn()))
    return RxPlan::kNotInvalidated;
  return scatter(offset, bytes, verdict);
}

RxPlan Responder::scatter(std::uint64_t offset, std::uint32_t bytes, RxVerdict& verdict) const noexcept {
  const bool found = core_.memory.find_pieces(qp_.receive_queue().front_sges(), qp_.receive_pd(), offset, bytes,
                                              kAccessLocalWrite, verdict.pieces, verdict.piece_count);
  return found ? RxPlan::kExecute : RxPlan::kLocalProtection;
}

AccessResult Responder::check_window(std::uint32_t key, std::uint64_t address, std::uint32_t length,
                                     std::uint32_t right, Piece& piece) const noexcept {
  return core_.memory.check_window(key, qp_.init().pd, qp_.qpn(), address, length, right, piece);
}

// The region is looked up for every packet, not only for the first: it may be deregistered in mid-message. A receive
// WQE is needed by the packet with the immediate alone; when there is none, that packet is refused (RNR) before its
// bytes are placed, and the bytes of the packets before it stay where they are.
RxPlan Responder::judge_write(const wire::OpcodeTraits& traits, const wire::Headers& headers, std::uint32_t bytes,
                              RxVerdict& verdict) const noexcept {
  const bool first = traits.begins();
  const bool last = traits.ends();
  const std::uint32_t length = first ? headers.dma_length : write_length_;
  const std::uint32_t remaining = first ? length : length - done_bytes_;
  if (length > kMaxMessageBytes || (last ? bytes != remaining : bytes >= remaining)) return RxPlan::kInvalidRequest;

  if (length != 0) {
    if ((qp_.attributes().access_flags & kAccessRemoteWrite) == 0) return RxPlan::kRemoteAccess;
    const std::uint32_t key = first ? headers.rkey : write_key_;
    const std::uint64_t address = first ? headers.va : write_address_;
    Piece& piece = verdict.pieces[0];
    if (check_remote(key, address, length, kAccessRemoteWrite, piece) != AccessResult::kOk)
      return RxPlan::kRemoteAccess;
    piece.address += length - remaining;
    piece.length = bytes;
    verdict.piece_count = 1;
  }
  if (traits.immediate && qp_.receive_queue().empty()) return RxPlan::kNotReady;
  return RxPlan::kExecute;
}

}  // namespace tensorwire::transport
