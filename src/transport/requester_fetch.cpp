// Requester, READ and atomics: their requests, the limit of how many are outstanding, fences, and their responses.
#include <algorithm>
#include <array>
#include <cstring>

#include "transport/placement.hpp"
#include "transport/qp.hpp"
#include "transport/requester.hpp"

namespace tensorwire::transport {

using wire::Opcode;

// ---- egress

bool Requester::may_leave(const SendWqe& wqe) const noexcept {
  // A fetch at or after next_index_ is one that a rewind put off.
  const bool fetch_before = fetch_count_ != 0 && static_cast<std::int32_t>(first_fetch() - next_index_) < 0;
  if (wqe.fence && fetch_before) return false;
  return !wqe.fetch || fetches_out_ < max_fetches_ || max_fetches_ == 0;  // 0: build_fetch() says what is wrong
}

// Nobody paces a responder, so no single request asks for more than half a window: the other half keeps the wire busy.
std::uint32_t Requester::request_packets() const noexcept {
  const std::uint64_t window =
      std::min(core_.config.qp_window_bytes, core_.scheduler.path(qp_.path()).config.window_bytes);
  const std::uint64_t packets = window / 2 / std::max<std::uint64_t>(fetch_mtu_, kMinPacketCharge);
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(packets, 1));
}

std::uint32_t Requester::request_end(const SendWqe& wqe, std::uint32_t packet) const noexcept {
  const std::uint32_t rest_of_request = wqe.request_packets - packet % wqe.request_packets;
  return packet + std::min(rest_of_request, wqe.packets - packet);
}

WcStatus Requester::build_fetch(const SendWqe& wqe, TxDesc& out) const noexcept {
  if (max_fetches_ == 0) return WcStatus::kLocalQpOperationError;
  for (const Sge& sge : qp_.send_queue().sges(next_index_)) {
    Piece piece;
    if (sge.length != 0 && core_.memory.check(sge.lkey, qp_.init().pd, sge.address, sge.length, kAccessLocalWrite,
                                              piece) != AccessResult::kOk)
      return WcStatus::kLocalProtectionError;
  }
  wire::Headers& h = out.headers;
  h.va = wqe.remote_address;
  h.rkey = wqe.rkey;
  if (wqe.opcode == WrOpcode::kRead) {
    const std::uint64_t skipped = std::uint64_t{next_packet_} * fetch_mtu_;
    const std::uint64_t most = std::uint64_t{request_end(wqe, next_packet_) - next_packet_} * fetch_mtu_;
    h.opcode = Opcode::kRcReadRequest;
    h.va += skipped;
    h.dma_length = static_cast<std::uint32_t>(std::min(wqe.length - skipped, most));
  } else {
    const AtomicOperands& operands = qp_.send_queue().operands(next_index_);
    const bool compare = wqe.opcode == WrOpcode::kCompareSwap;
    h.opcode = compare ? Opcode::kRcCompareSwap : Opcode::kRcFetchAdd;
    h.swap_add = compare ? operands.swap : operands.compare_add;
    h.compare = compare ? operands.compare_add : 0;
  }
  out.piece_count = 0;
  out.inline_pieces = false;
  out.payload_bytes = 0;
  return WcStatus::kSuccess;
}

// ---- bookkeeping

void Requester::fetch_started(const SendWqe& wqe) noexcept {
  fetches_[(fetch_first_ + fetch_count_++) % kMaxRdAtomic] = next_index_;
  next_ssn_ += (wqe.packets - 1) / wqe.request_packets;  // each request counts
}

std::uint32_t Requester::due_psn() const noexcept {
  const std::uint32_t first = qp_.send_queue().at(first_fetch()).first_psn;
  return wire::psn_diff(una_psn_, first) > 0 ? una_psn_ : first;
}

/// Its packets [from, to) have been answered.
void Requester::fetch_advanced(const SendWqe& wqe, std::uint32_t from, std::uint32_t to) noexcept {
  const bool complete = to == wqe.packets;
  const std::uint32_t requests =
      (complete ? to + wqe.request_packets - 1 : to) / wqe.request_packets - from / wqe.request_packets;
  fetches_out_ -= std::min(requests, fetches_out_);
  if (!complete) return;
  fetch_first_ = (fetch_first_ + 1) % kMaxRdAtomic;
  --fetch_count_;
}

// ---- responses

// The PSN alone says where a response belongs, so only the one that is due is looked at. A response can begin anywhere
// (First, Only), because a READ can be asked for again from anywhere; it ends (Last, Only) where its request does.
RxPlan Requester::judge_response(const wire::Headers& headers, std::uint32_t bytes, RxVerdict& verdict) const noexcept {
  if (fetch_count_ == 0 || !expects(headers.psn)) return RxPlan::kNone;
  const std::int32_t distance = wire::psn_diff(headers.psn, due_psn());
  if (distance < 0) return RxPlan::kNone;
  if (distance > 0) return RxPlan::kResponseGap;

  const SendWqe& wqe = qp_.send_queue().at(first_fetch());
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  const bool acknowledges = !traits.aeth || (headers.syndrome & wire::kSyndromeKindMask) == wire::kSyndromeAck;
  if (traits.atomic_ack_eth != is_atomic(wqe.opcode) || !acknowledges) return RxPlan::kResponseBad;
  if (traits.atomic_ack_eth) return bytes == 0 ? RxPlan::kResponse : RxPlan::kResponseBad;

  const auto packet = static_cast<std::uint32_t>(wire::psn_diff(headers.psn, wqe.first_psn));
  const bool begins = traits.begins();
  const bool ends = traits.ends();
  const bool must_begin = packet % wqe.request_packets == 0;
  const bool must_end = packet + 1 == request_end(wqe, packet);
  if (ends != must_end || (must_begin && !begins) || bytes != payload_of(wqe, packet)) return RxPlan::kResponseBad;

  verdict.verify_first = begins;
  const bool found =
      core_.memory.find_pieces(qp_.send_queue().sges(first_fetch()), qp_.init().pd, std::uint64_t{packet} * fetch_mtu_,
                               bytes, kAccessLocalWrite, verdict.pieces, verdict.piece_count);
  return found ? RxPlan::kResponse : RxPlan::kResponseUnplaced;
}

void Requester::on_response(RxPlan plan, const wire::Headers& headers, std::uint32_t bytes, Ps now) noexcept {
  if (fetch_count_ == 0 || !expects(headers.psn)) return;  // the judgement was overtaken
  const std::int32_t distance = wire::psn_diff(headers.psn, due_psn());
  if ((plan == RxPlan::kResponseGap) != (distance > 0) || distance < 0) return;
  // Whoever answers a fetch has executed all before it.
  advance(due_psn(), now);
  if (!can_send(qp_.state())) return;
  switch (plan) {
    case RxPlan::kResponseGap:
      return on_loss(core_.counters.implied_nak_seq_err, now);
    case RxPlan::kResponseBad:
      return fail_head(WcStatus::kBadResponseError);
    case RxPlan::kResponseUnplaced:
      return fail_head(WcStatus::kLocalProtectionError);
    default:
      break;
  }
  if (headers.opcode == Opcode::kRcAtomicAck && !store_original(headers.original))
    return fail_head(WcStatus::kLocalProtectionError);
  core_.counters.rx_bytes += bytes;
  if (wire::traits(headers.opcode).aeth) take_credits(headers);
  advance(wire::psn_add(headers.psn, 1), now);
}

/// The old value goes to the atomic's scatter list, in the byte order of this host.
bool Requester::store_original(std::uint64_t original) noexcept {
  std::array<std::byte, kAtomicBytes> bytes;
  std::memcpy(bytes.data(), &original, bytes.size());
  std::array<Piece, kMaxSge> pieces;
  std::uint8_t count = 0;
  if (!core_.memory.find_pieces(qp_.send_queue().sges(first_fetch()), qp_.init().pd, 0, kAtomicBytes, kAccessLocalWrite,
                                pieces, count))
    return false;
  return scatter(std::span(pieces).first(count), bytes, nullptr);
}

}  // namespace tensorwire::transport
