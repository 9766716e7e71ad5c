// Requester, egress: segmentation, headers, late gathering of the source, window.
#include <algorithm>
#include <array>

#include "transport/qp.hpp"
#include "transport/requester.hpp"
#include "transport/timing.hpp"

namespace tensorwire::transport {
namespace {

using wire::Opcode;
using wire::Position;

using OpcodeRow = std::array<Opcode, 4>;  // by Position
constexpr OpcodeRow kNoData{};            // READ, atomics, local requests
/// By WrOpcode.
constexpr std::array<OpcodeRow, 10> kOpcodes = {{
    {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLast, Opcode::kRcWriteOnly},
    {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLastImm, Opcode::kRcWriteOnlyImm},
    {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLast, Opcode::kRcSendOnly},
    {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLastImm, Opcode::kRcSendOnlyImm},
    kNoData,
    kNoData,
    kNoData,
    kNoData,
    kNoData,
    {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLastInvalidate, Opcode::kRcSendOnlyInvalidate},
}};
static_assert(kOpcodes.size() == static_cast<std::size_t>(WrOpcode::kSendInvalidate) + 1);

bool is_write(WrOpcode opcode) noexcept { return opcode == WrOpcode::kWrite || opcode == WrOpcode::kWriteImm; }
bool has_immediate(WrOpcode opcode) noexcept { return opcode == WrOpcode::kWriteImm || opcode == WrOpcode::kSendImm; }

/// The largest charge of a packet of any queue pair on the path, so that "a full packet would still fit" means the same
/// to all of them.
constexpr std::uint64_t kFullPacketCharge = mtu_bytes(MtuCode::k4096);

}  // namespace

void Requester::tune() noexcept {
  const QpAttr& attr = qp_.attributes();
  const bool whole = core_.scheduler.path(qp_.path()).config.whole_messages;
  fetch_mtu_ = mtu_bytes(attr.path_mtu);
  mtu_ = whole ? kMaxMessageBytes : fetch_mtu_;
  timeout_ = ack_timeout(attr.timeout);
  if (timeout_ != kNever) timeout_ = std::max(timeout_, core_.config.ack_timeout_floor);
  retries_left_ = attr.retry_cnt;
  rnr_retries_left_ = attr.rnr_retry;
  max_fetches_ = attr.max_rd_atomic;
}

void Requester::start() noexcept {
  tune();
  una_psn_ = next_psn_ = high_psn_ = qp_.attributes().sq_psn;
  next_index_ = started_ = qp_.send_queue().head();
  next_packet_ = 0;
  since_ack_request_ = 0;
  forget_fetches();
  next_ssn_ = 1;
  credits_given_ = false;
}

void Requester::schedule() noexcept {
  if (ready()) {
    core_.scheduler.data_ready(qp_);
  } else {
    core_.scheduler.data_done(qp_);
  }
}

bool Requester::drained() const noexcept { return qp_.send_queue().head() == started_; }

bool Requester::ready() const noexcept {
  const QpState state = qp_.state();
  // In SQD what was begun goes on to its end, and nothing else begins.
  if (state != QpState::kRts && (state != QpState::kSqd || next_index_ == started_)) return false;
  if (holding_ || stalled_ != WcStatus::kSuccess || qp_.paced()) return false;
  if (next_index_ == qp_.send_queue().posted()) return false;
  const SendWqe& wqe = qp_.send_queue().at(next_index_);
  if ((wqe.fetch || wqe.fence) && !may_leave(wqe)) return false;
  // Beyond its credits a queue pair sends one packet at a time, for the peer to accept or refuse.
  if (credits_given_ && in_flight_ != 0 && beyond_credits(wqe, next_packet_ + 1 == packets_of(wqe))) return false;
  return in_flight_ == 0 || window_fits(next_charge());
}

bool Requester::window_fits(std::uint64_t charge) const noexcept {
  return in_flight_ == 0 || in_flight_ + charge <= core_.config.qp_window_bytes;
}

std::uint32_t Requester::packets_of(const SendWqe& wqe) const noexcept {
  return packets_of_message(wqe.length, mtu_of(wqe));
}

std::uint32_t Requester::payload_of(const SendWqe& wqe, std::uint32_t packet) const noexcept {
  return payload_of_packet(wqe.length, packet, mtu_of(wqe));
}

std::uint64_t Requester::charge_before(const SendWqe& wqe, std::uint32_t all, std::uint32_t packets) const noexcept {
  const std::uint64_t full = packet_charge(mtu_of(wqe));
  if (packets < all) return packets * full;
  return (all - 1) * full + packet_charge(payload_of(wqe, all - 1));
}

std::uint64_t Requester::charge_between(const SendWqe& wqe, std::uint32_t from, std::uint32_t to) const noexcept {
  if (wqe.packets <= 1) return from != to ? packet_charge(wqe.length) : 0;
  return charge_before(wqe, wqe.packets, to) - charge_before(wqe, wqe.packets, from);
}

std::uint32_t Requester::next_payload() const noexcept {
  const SendWqe& wqe = qp_.send_queue().at(next_index_);
  return wqe.fetch ? 0 : payload_of(wqe, next_packet_);
}

std::uint64_t Requester::next_charge() const noexcept {
  const SendWqe& wqe = qp_.send_queue().at(next_index_);
  if (!wqe.fetch) return packet_charge(payload_of(wqe, next_packet_));
  if (next_index_ == started_) {
    const std::uint32_t all = packets_of(wqe);
    return charge_before(wqe, all, std::min(all, request_packets()));
  }
  return charge_between(wqe, next_packet_, request_end(wqe, next_packet_));
}

// An acknowledgement is asked for where the peer would otherwise owe none and we would wait: at the end of a message,
// every so often inside one, and when the window has no room for another full packet. The last rule keeps many queue
// pairs on one small window from waiting for each other's unrequested acknowledgements.
bool Requester::wants_ack(const SendWqe& wqe, bool last) noexcept {
  const bool at_once = last || wqe.fetch || (credits_given_ && beyond_credits(wqe, last));
  if (!at_once && core_.scheduler.path(qp_.path()).fits(kFullPacketCharge) &&
      ++since_ack_request_ < core_.config.ack_request_every && window_fits(packet_charge(mtu_of(wqe))))
    return false;
  since_ack_request_ = 0;
  return true;
}

// A path that carries whole messages leaves it to the peer to read long ones where they are. What cannot be read so
// goes as bytes, in packets, as READ responses do.
bool Requester::has_staged_source(std::uint32_t index) const noexcept {
  if (qp_.send_queue().at(index).inline_data) return false;
  for (const Sge& sge : qp_.send_queue().sges(index)) {
    const MemoryRegion* const region = core_.memory.find(sge.lkey);
    if (region != nullptr && region->staged) return true;
  }
  return false;
}

/// A WQE gets its numbers when its first packet is about to leave.
void Requester::number(SendWqe& wqe) noexcept {
  wqe.first_psn = next_psn_;
  wqe.cut = mtu_ == kMaxMessageBytes && has_staged_source(next_index_);
  wqe.packets = packets_of(wqe);
  wqe.request_packets = wqe.fetch ? request_packets() : wqe.packets;
  wqe.ssn = next_ssn_;
}

bool Requester::build(TxDesc& out, Ps now) noexcept {
  SendWqe& wqe = qp_.send_queue().at(next_index_);
  if (wqe.local) {
    pass_local(wqe);
    return false;
  }
  const bool starts = next_index_ == started_;
  if (starts) number(wqe);
  out.headers = {};
  const WcStatus built = wqe.fetch ? build_fetch(wqe, out) : build_data(next_index_, next_packet_, mtu_of(wqe), out);
  if (built != WcStatus::kSuccess) {
    stall(built);
    return false;
  }
  const std::uint32_t psns = wqe.fetch ? request_end(wqe, next_packet_) - next_packet_ : 1;
  const std::uint64_t charge = wqe.fetch ? next_charge() : packet_charge(out.payload_bytes);
  if (starts) {
    ++started_;
    ++next_ssn_;
    if (wqe.fetch) fetch_started(wqe);
  }
  if (wqe.fetch) ++fetches_out_;
  const bool idle = in_flight_ == 0;
  in_flight_ += charge;
  if (idle) restart_timer(now);
  core_.scheduler.charge(qp_.path(), charge);

  const QpAttr& attr = qp_.attributes();
  out.headers.dest_qpn = attr.dest_qpn;
  out.headers.psn = next_psn_;
  out.headers.ack_req = wants_ack(wqe, next_packet_ + psns == wqe.packets);
  out.av = &attr.av;
  out.path = qp_.path();
  out.src_qpn = qp_.qpn();
  if (core_.withdrawals != nullptr) out.withdrawals = core_.withdrawals->of(qp_.qpn());
  out.retransmission = next_psn_ != high_psn_;

  EngineCounters& counters = core_.counters;
  ++counters.tx_packets;
  counters.tx_bytes += out.payload_bytes;
  if (out.retransmission) ++counters.retransmitted_packets;

  next_psn_ = wire::psn_add(next_psn_, psns);
  if (!out.retransmission) high_psn_ = next_psn_;
  next_packet_ += psns;
  if (next_packet_ == wqe.packets) {
    ++next_index_;
    next_packet_ = 0;
  }
  return true;
}

WcStatus Requester::build_data(std::uint32_t index, std::uint32_t packet, std::uint32_t mtu, TxDesc& out) noexcept {
  const SendWqe& wqe = qp_.send_queue().at(index);
  const std::uint32_t bytes = payload_of_packet(wqe.length, packet, mtu);
  const WcStatus gathered = gather(index, std::uint64_t{packet} * mtu, bytes, out);
  if (gathered != WcStatus::kSuccess) return gathered;

  const bool first = packet == 0;
  const bool last = packet + 1 == wqe.packets;
  const Position position =
      first ? (last ? Position::kOnly : Position::kFirst) : (last ? Position::kLast : Position::kMiddle);
  wire::Headers& h = out.headers;
  h.opcode = kOpcodes[static_cast<std::size_t>(wqe.opcode)][static_cast<std::size_t>(position)];
  h.solicited = last && wqe.solicited && wqe.opcode != WrOpcode::kWrite;
  h.pad = static_cast<std::uint8_t>(-bytes & 3U);
  if (first && is_write(wqe.opcode)) {
    h.va = wqe.remote_address;
    h.rkey = wqe.rkey;
    h.dma_length = wqe.length;
  }
  if (last && has_immediate(wqe.opcode)) h.immediate = wqe.immediate;
  if (last && wqe.opcode == WrOpcode::kSendInvalidate) h.invalidate_rkey = wqe.rkey;
  out.payload_bytes = bytes;
  return WcStatus::kSuccess;
}

// The source is looked up when the packet leaves, each time it leaves: a region that was deregistered meanwhile is
// found out here, and a retransmission sends what the memory holds then, as an HCA's late DMA does.
WcStatus Requester::gather(std::uint32_t index, std::uint64_t offset, std::uint32_t bytes, TxDesc& out) noexcept {
  out.piece_count = 0;
  out.inline_pieces = qp_.send_queue().at(index).inline_data;
  if (bytes == 0) return WcStatus::kSuccess;
  if (out.inline_pieces) {
    const std::byte* from = qp_.send_queue().inline_bytes(index) + offset;
    out.pieces[out.piece_count++] = {nullptr, reinterpret_cast<std::uintptr_t>(from), bytes};
    return WcStatus::kSuccess;
  }
  const bool found = core_.memory.find_pieces(qp_.send_queue().sges(index), qp_.init().pd, offset, bytes, 0, out.pieces,
                                              out.piece_count);
  return found ? WcStatus::kSuccess : WcStatus::kLocalProtectionError;
}

void Requester::stall(WcStatus status) noexcept {
  if (next_index_ == qp_.send_queue().head()) {
    fail_head(status);
  } else {
    stalled_ = status;
    core_.scheduler.data_done(qp_);
  }
}

void Requester::refused() noexcept {
  // Without a work request of our own it was an answer to the peer that did not fit; then the event tells.
  if (qp_.send_queue().head() != qp_.send_queue().posted()) return fail_head(WcStatus::kLocalQpOperationError);
  qp_.enter_error();
  qp_.raise(AsyncEvent::kQpFatal);
}

void Requester::source_lost(std::uint32_t psn) noexcept {
  if (!can_send(qp_.state()) || !expects(psn)) return;
  // Move to the work request that holds psn; what was sent after it is forgotten and will never be sent.
  std::uint32_t index = qp_.send_queue().head();
  std::uint64_t kept = 0;
  std::uint32_t from = una_psn_;
  for (; index != started_; ++index) {
    const SendWqe& wqe = qp_.send_queue().at(index);
    const std::uint32_t end = wire::psn_add(wqe.first_psn, wqe.packets);
    if (wire::psn_diff(psn, end) < 0) break;
    kept += charge_between(wqe, static_cast<std::uint32_t>(wire::psn_diff(from, wqe.first_psn)), wqe.packets);
    from = end;
  }
  if (wire::psn_diff(from, next_psn_) > 0) return;  // not sent again yet: gathering will find out
  core_.scheduler.release(qp_.path(), in_flight_ - kept);
  in_flight_ = kept;
  next_index_ = index;
  next_psn_ = from;
  next_packet_ = static_cast<std::uint32_t>(wire::psn_diff(from, qp_.send_queue().at(index).first_psn));
  stall(WcStatus::kLocalProtectionError);
}

}  // namespace tensorwire::transport
