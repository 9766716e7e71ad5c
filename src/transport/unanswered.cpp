#include "transport/unanswered.hpp"

#include "transport/qp.hpp"

namespace tensorwire::transport {

void Unanswered::start() noexcept {
  next_psn_ = qp_.attributes().sq_psn;
  next_index_ = qp_.send_queue().head();
  next_packet_ = 0;
}

void Unanswered::stop() noexcept {
  next_index_ = qp_.send_queue().head();
  next_packet_ = 0;
  failure_ = WcStatus::kSuccess;
}

void Unanswered::flush() noexcept {
  complete_given();
  qp_.requester.flush();
  stop();
}

void Unanswered::schedule() noexcept {
  if (qp_.state() == QpState::kSqe) return flush();
  if (ready()) {
    core_.scheduler.data_ready(qp_);
  } else {
    core_.scheduler.data_done(qp_);
  }
}

bool Unanswered::ready() const noexcept {
  if (failure_ != WcStatus::kSuccess || qp_.paced() || next_index_ == qp_.send_queue().posted()) return false;
  const QpState state = qp_.state();
  return state == QpState::kRts || (state == QpState::kSqd && next_packet_ != 0);  // SQD: to the end of the message
}

bool Unanswered::drained() const noexcept { return qp_.send_queue().head() == next_index_ && next_packet_ == 0; }

bool Unanswered::datagrams() const noexcept { return qp_.init().type == QpType::kUd; }

/// A datagram is one packet, whose length was judged when it was posted.
std::uint32_t Unanswered::mtu_of(std::uint32_t index) const noexcept {
  return datagrams() ? qp_.send_queue().target(index).address.max_payload : mtu_bytes(qp_.attributes().path_mtu);
}

std::uint32_t Unanswered::next_payload() const noexcept {
  return payload_of_packet(qp_.send_queue().at(next_index_).length, next_packet_, mtu_of(next_index_));
}

bool Unanswered::build(TxDesc& out) noexcept {
  SendWqe& wqe = qp_.send_queue().at(next_index_);
  if (wqe.local) {
    pass_local(wqe);
    return false;
  }
  const std::uint32_t mtu = mtu_of(next_index_);
  if (next_packet_ == 0) {
    wqe.first_psn = next_psn_;
    wqe.packets = packets_of_message(wqe.length, mtu);
  }
  out.headers = {};
  const WcStatus built = qp_.requester.build_data(next_index_, next_packet_, mtu, out);
  if (built != WcStatus::kSuccess) {
    fail(next_index_, built);
    settle_failure();
    return false;
  }
  if (datagrams()) {
    address_datagram(wqe, out);
  } else {
    out.headers.opcode = wire::unreliable(out.headers.opcode);
    out.headers.dest_qpn = qp_.attributes().dest_qpn;
    out.av = &qp_.attributes().av;
  }
  out.headers.psn = next_psn_;
  out.path = qp_.path();
  out.src_qpn = qp_.qpn();
  out.retransmission = false;

  ++core_.counters.tx_packets;
  core_.counters.tx_bytes += out.payload_bytes;
  next_psn_ = wire::psn_add(next_psn_, 1);
  if (++next_packet_ == wqe.packets) {
    ++next_index_;
    next_packet_ = 0;
    core_.scheduler.given_out(qp_);
  }
  return true;
}

/// It needs no packet, but completes in its order.
void Unanswered::pass_local(SendWqe& wqe) noexcept {
  wqe.packets = 0;
  if (!qp_.requester.execute_local(next_index_)) {
    fail(next_index_, WcStatus::kWindowBindError);
    return settle_failure();
  }
  const bool oldest = next_index_++ == qp_.send_queue().head();
  if (oldest) {
    qp_.requester.complete_head(WcStatus::kSuccess);
  } else {
    core_.scheduler.given_out(qp_);
  }
  schedule();
}

void Unanswered::address_datagram(const SendWqe& wqe, TxDesc& out) const noexcept {
  const DatagramTarget& target = qp_.send_queue().target(next_index_);
  const bool immediate = wqe.opcode == WrOpcode::kSendImm;
  out.headers.opcode = immediate ? wire::Opcode::kUdSendOnlyImm : wire::Opcode::kUdSendOnly;
  out.headers.dest_qpn = target.qpn;
  out.headers.qkey = (target.qkey & kPrivilegedQkey) != 0 ? qp_.attributes().qkey : target.qkey;
  out.headers.src_qpn = qp_.qpn();
  out.av = &target.address.av;
}

void Unanswered::complete_given() noexcept {
  while (qp_.send_queue().head() != next_index_) {
    if (failure_ != WcStatus::kSuccess && qp_.send_queue().head() == failed_index_) break;
    qp_.requester.complete_head(WcStatus::kSuccess);
  }
  settle_failure();
  qp_.settle_drain();
}

/// Only noted: the link still reads the packets that it was given together with the one that failed.
void Unanswered::fail(std::uint32_t index, WcStatus status) noexcept {
  const bool earlier = static_cast<std::int32_t>(index - failed_index_) < 0;
  if (failure_ != WcStatus::kSuccess && !earlier) return;  // of two the earlier one counts
  failed_index_ = index;
  failure_ = status;
  core_.scheduler.data_done(qp_);
}

/// At once when the failed entry is the oldest, else when those before it, which are with the link, have completed.
void Unanswered::settle_failure() noexcept {
  if (failure_ == WcStatus::kSuccess || failed_index_ != qp_.send_queue().head()) return;
  qp_.requester.complete_head(failure_);
  stop();
  if (can_send(qp_.state())) qp_.enter_send_error();
}

void Unanswered::source_lost(std::uint32_t psn) noexcept {
  const std::uint32_t end = next_packet_ == 0 ? next_index_ : next_index_ + 1;
  for (std::uint32_t index = qp_.send_queue().head(); index != end; ++index) {
    const SendWqe& wqe = qp_.send_queue().at(index);
    const std::int32_t packet = wire::psn_diff(psn, wqe.first_psn);
    if (packet < 0 || static_cast<std::uint32_t>(packet) >= wqe.packets) continue;
    core_.scheduler.given_out(qp_);  // also when no packet of a whole message is: the next next_tx() call settles it
    return fail(index, WcStatus::kLocalProtectionError);
  }
}

void Unanswered::refused() noexcept {
  if (datagrams() || drained()) return;
  core_.scheduler.given_out(qp_);
  fail(qp_.send_queue().head(), WcStatus::kLocalQpOperationError);
}

}  // namespace tensorwire::transport
