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

/// [WrOpcode write, write+imm, send, send+imm][Position].
constexpr std::array<std::array<Opcode, 4>, 4> kOpcodes = {{
    {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLast, Opcode::kRcWriteOnly},
    {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLastImm, Opcode::kRcWriteOnlyImm},
    {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLast, Opcode::kRcSendOnly},
    {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLastImm, Opcode::kRcSendOnlyImm},
}};

bool is_write(WrOpcode opcode) noexcept { return opcode == WrOpcode::kWrite || opcode == WrOpcode::kWriteImm; }
bool has_immediate(WrOpcode opcode) noexcept { return opcode == WrOpcode::kWriteImm || opcode == WrOpcode::kSendImm; }

/// The largest charge of a packet of any queue pair on the path, so that "a full packet would still fit" means the same
/// to all of them.
constexpr std::uint64_t kFullPacketCharge = mtu_bytes(MtuCode::k4096);

}  // namespace

void Requester::start() noexcept {
  const QpAttr& attr = qp_.attributes();
  const bool whole = core_.scheduler.path(qp_.path()).config.whole_messages;
  mtu_ = whole ? kMaxMessageBytes : mtu_bytes(attr.path_mtu);
  packet_charge_ = std::max<std::uint32_t>(mtu_, kMinPacketCharge);
  timeout_ = ack_timeout(attr.timeout);
  if (timeout_ != kNever) timeout_ = std::max(timeout_, core_.config.ack_timeout_floor);
  retries_left_ = attr.retry_cnt;
  rnr_retries_left_ = attr.rnr_retry;
  una_psn_ = next_psn_ = high_psn_ = attr.sq_psn;
  next_index_ = started_ = qp_.send_queue().head();
  next_packet_ = 0;
  since_ack_request_ = 0;
}

void Requester::schedule() noexcept {
  if (ready()) {
    core_.scheduler.data_ready(qp_);
  } else {
    core_.scheduler.data_done(qp_);
  }
}

bool Requester::ready() const noexcept {
  if (qp_.state() != QpState::kRts || holding_ || stalled_ != WcStatus::kSuccess || qp_.paced()) return false;
  if (next_index_ == qp_.send_queue().posted()) return false;
  return window_fits(std::max<std::uint64_t>(next_payload(), kMinPacketCharge));
}

bool Requester::window_fits(std::uint64_t charge) const noexcept {
  return in_flight_ == 0 || in_flight_ + charge <= core_.config.qp_window_bytes;
}

std::uint32_t Requester::packets_of(const SendWqe& wqe) const noexcept {
  return wqe.length <= mtu_ ? 1 : (wqe.length + mtu_ - 1) / mtu_;
}

std::uint32_t Requester::payload_of(const SendWqe& wqe, std::uint32_t packet) const noexcept {
  return std::min(wqe.length - packet * mtu_, mtu_);
}

std::uint64_t Requester::charge_before(const SendWqe& wqe, std::uint32_t packets) const noexcept {
  if (packets < wqe.packets) return std::uint64_t{packets} * packet_charge_;
  const std::uint32_t last = payload_of(wqe, wqe.packets - 1);
  return std::uint64_t{wqe.packets - 1} * packet_charge_ + std::max<std::uint64_t>(last, kMinPacketCharge);
}

std::uint32_t Requester::next_payload() const noexcept {
  return payload_of(qp_.send_queue().at(next_index_), next_packet_);
}

// An acknowledgement is asked for where the peer would otherwise owe none and we would wait: at the end of a message,
// every so often inside one, and when the window has no room for another full packet. The last rule keeps many queue
// pairs on one small window from waiting for each other's unrequested acknowledgements.
bool Requester::wants_ack(bool last) noexcept {
  const bool path_closes = !core_.scheduler.path(qp_.path()).fits(kFullPacketCharge);
  if (!last && !path_closes && ++since_ack_request_ < core_.config.ack_request_every && window_fits(packet_charge_))
    return false;
  since_ack_request_ = 0;
  return true;
}

bool Requester::build(TxDesc& out, Ps now) noexcept {
  SendWqe& wqe = qp_.send_queue().at(next_index_);
  if (next_index_ == started_) {
    wqe.first_psn = next_psn_;
    wqe.packets = packets_of(wqe);
  }
  const std::uint32_t bytes = payload_of(wqe, next_packet_);
  const WcStatus gathered = gather(next_index_, std::uint64_t{next_packet_} * mtu_, bytes, out);
  if (gathered != WcStatus::kSuccess) {
    stall(gathered);
    return false;
  }
  if (next_index_ == started_) ++started_;

  const std::uint64_t charge = std::max<std::uint64_t>(bytes, kMinPacketCharge);
  const bool idle = in_flight_ == 0;
  in_flight_ += charge;
  if (idle) restart_timer(now);
  core_.scheduler.charge(qp_.path(), charge);

  const QpAttr& attr = qp_.attributes();
  const bool first = next_packet_ == 0;
  const bool last = next_packet_ + 1 == wqe.packets;
  const Position position =
      first ? (last ? Position::kOnly : Position::kFirst) : (last ? Position::kLast : Position::kMiddle);
  wire::Headers& h = out.headers;
  h = {};
  h.opcode = kOpcodes[static_cast<std::size_t>(wqe.opcode)][static_cast<std::size_t>(position)];
  h.solicited = last && wqe.solicited && wqe.opcode != WrOpcode::kWrite;
  h.ack_req = wants_ack(last);
  h.pad = static_cast<std::uint8_t>(-bytes & 3U);
  h.dest_qpn = attr.dest_qpn;
  h.psn = next_psn_;
  if (first && is_write(wqe.opcode)) {
    h.va = wqe.remote_address;
    h.rkey = wqe.rkey;
    h.dma_length = wqe.length;
  }
  if (last && has_immediate(wqe.opcode)) h.immediate = wqe.immediate;

  out.av = &attr.av;
  out.path = qp_.path();
  out.src_qpn = qp_.qpn();
  out.payload_bytes = bytes;
  out.retransmission = next_psn_ != high_psn_;

  EngineCounters& counters = core_.counters;
  ++counters.tx_packets;
  counters.tx_bytes += bytes;
  if (out.retransmission) ++counters.retransmitted_packets;

  if (!out.retransmission) high_psn_ = wire::psn_add(high_psn_, 1);
  next_psn_ = wire::psn_add(next_psn_, 1);
  if (last) {
    ++next_index_;
    next_packet_ = 0;
  } else {
    ++next_packet_;
  }
  return true;
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
  for (const Sge& sge : qp_.send_queue().sges(index)) {
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    Piece& piece = out.pieces[out.piece_count];
    const AccessResult result = core_.memory.check(sge.lkey, qp_.init().pd, sge.address, sge.length, 0, piece);
    if (result != AccessResult::kOk) return WcStatus::kLocalProtectionError;
    piece.address += offset;
    piece.length = std::min(sge.length - static_cast<std::uint32_t>(offset), bytes);
    bytes -= piece.length;
    offset = 0;
    ++out.piece_count;
    if (bytes == 0) break;
  }
  return WcStatus::kSuccess;
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
  if (qp_.state() != QpState::kRts || !expects(psn)) return;
  // Move to the work request that holds psn; what was sent after it is forgotten and will never be sent.
  std::uint32_t index = qp_.send_queue().head();
  std::uint64_t kept = 0;
  std::uint32_t from = una_psn_;
  for (; index != started_; ++index) {
    const SendWqe& wqe = qp_.send_queue().at(index);
    const std::uint32_t end = wire::psn_add(wqe.first_psn, wqe.packets);
    if (wire::psn_diff(psn, end) < 0) break;
    kept += charge_before(wqe, wqe.packets) -
            charge_before(wqe, static_cast<std::uint32_t>(wire::psn_diff(from, wqe.first_psn)));
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
