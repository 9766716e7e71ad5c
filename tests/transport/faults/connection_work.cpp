// The applications at both ends of a connection: what they post, and what they make of its completion.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "connection.hpp"
#include "transport/queue_pair.hpp"

namespace tensorwire::transport::faults {

void Connection::send_list(std::size_t side, const Operation& op, SgeList& sges) {
  const Zone& zone = op.fetches() ? directions[side].landing : directions[side].source;
  const std::uint64_t address = zone.address + (op.fetches() ? op.target : op.source);
  if (op.inline_data) {              // taken when posted: what the memory holds afterwards does not count
    scratch_.resize(op.length + 1);  // an address, whatever the length
    std::memcpy(scratch_.data(), reinterpret_cast<const void*>(address), op.length);
    sges = cut(reinterpret_cast<std::uintptr_t>(scratch_.data()), op.length, 0);
    return;
  }
  switch (op.defect) {
    case Defect::kSourceUnknownKey:
      sges = cut(address, op.length, zone.key ^ 0x5a5a'0001U);
      break;
    case Defect::kSourceOtherDomain:
      sges = cut(address, op.length, zone.other_domain);
      break;
    case Defect::kSourceDeregistered:
      sges = cut(address, op.length, zone.deregistered);
      break;
    case Defect::kSourcePastEnd:
      if (op.length == 0) break;
      sges.add({zone.end() - op.length + 1, op.length, zone.key});
      break;
    case Defect::kReceiveNoRight:
      sges = cut(address, op.length, op.fetches() ? zone.no_right : zone.key);
      break;
    default:
      sges = cut(address, op.length, zone.key);
  }
}

void Connection::name_target(std::size_t side, const Operation& op, SendWr& wr) {
  const Zone& zone = is_atomic(op.opcode)           ? directions[side].words
                     : op.opcode == WrOpcode::kRead ? directions[1 - side].source
                                                    : directions[side].target;
  wr.remote_address = zone.address + (op.fetches() ? op.source : op.target);
  wr.rkey = zone.key;
  switch (op.defect) {
    case Defect::kRemoteUnknownKey:
      wr.rkey = zone.key ^ 0x5a5a'0001U;
      break;
    case Defect::kRemoteOtherDomain:
      wr.rkey = zone.other_domain;
      break;
    case Defect::kRemoteNoRight:
      wr.rkey = zone.no_right;
      break;
    case Defect::kRemoteDeregistered:
      wr.rkey = zone.deregistered;
      break;
    case Defect::kRemotePastEnd:
      wr.remote_address = zone.end() - op.length + 1;
      break;
    case Defect::kRemoteBeforeStart:
      wr.remote_address = zone.address - 1;
      break;
    case Defect::kRemoteWraps:
      wr.remote_address = ~std::uint64_t{0} - random_.below(op.length + 1);
      break;
    default:
      if (op.length == 0 && random_.below(2) == 0) wr.rkey = static_cast<std::uint32_t>(random_.next());
  }
}

bool Connection::post_send(std::size_t side, Ps now) {
  Direction& direction = directions[side];
  End& end = ends[side];
  if (direction.all_posted() || end.life != life) return false;
  if (!can_send(end.ref.state) && end.ref.state != QpState::kErr) return false;
  const Operation& op = direction.operations.all[direction.next_operation];
  SgeList sges;
  send_list(side, op, sges);
  SendWr wr;
  wr.wr_id = direction.next_operation;
  wr.opcode = op.opcode;
  wr.signaled = op.signaled;
  wr.solicited = op.solicited;
  wr.inline_data = op.inline_data;
  wr.immediate = op.immediate;
  wr.fence = op.fence;
  wr.compare_add = op.compare_add;
  wr.swap = op.swap;
  name_target(side, op, wr);
  const bool asked = ends[1 - side].window.asked;
  name_window(side, op, wr);
  wr.sges = sges.span();
  const int result = end.qp->post_send(wr);
  const bool full = end.ref.sends_outstanding() == end.caps.max_send_wr;
  require(result == (full ? ENOMEM : 0), "a request is taken unless the ring is full");
  if (full) {
    ends[1 - side].window.asked = asked;
    return false;
  }
  if (op.inline_data) std::fill(scratch_.begin(), scratch_.end(), std::byte{0x3c});
  end.ref.post_send(wr, sges);
  end.host->engine.doorbell(*end.qp, now);
  end.ref.doorbell();
  ++direction.next_operation;
  return true;
}

bool Connection::post_sends(std::size_t side, Ps now) {
  if (ends[side].ref.state == QpState::kErr && random_.below(8) != 0) return false;
  bool posted = false;
  for (std::uint32_t n = 1 + random_.below(5); n != 0 && post_send(side, now); --n) posted = true;
  return posted;
}

SgeList Connection::receive_list(const Direction& direction, const Operation& op) {
  const Zone& zone = direction.target;
  const std::uint64_t address = zone.address + op.target;
  switch (op.defect) {
    case Defect::kReceiveShort:
      return cut(address, op.length == 0 ? 0 : op.length - 1 - random_.below(op.length), zone.key);
    case Defect::kReceiveUnknownKey:
      return cut(address, op.length, zone.key ^ 0x5a5a'0001U);
    case Defect::kReceiveNoRight:
      return cut(address, op.length, zone.no_right);
    case Defect::kReceiveOtherDomain:
      return cut(address, op.length, zone.other_domain);
    case Defect::kReceivePastEnd: {
      SgeList sges;
      sges.add({address, static_cast<std::uint32_t>(zone.end() - address) + 1, zone.key});
      return sges;
    }
    default:
      return cut(address, op.room, zone.key);
  }
}

bool Connection::post_receive(std::size_t side) {
  Direction& direction = directions[1 - side];
  End& end = ends[side];
  if (end.life != life || end.ref.state == QpState::kReset) return false;
  const auto& all = direction.operations.all;
  while (direction.next_receive < all.size() && !all[direction.next_receive].consumes_receive())
    ++direction.next_receive;
  if (direction.next_receive == all.size()) return false;
  const Operation& op = all[direction.next_receive];
  SgeList sges;
  if (op.is_send()) sges = receive_list(direction, op);
  const int result = end.qp->post_recv({direction.next_receive, sges.span()});
  const bool full = end.ref.receives_outstanding() == end.caps.max_recv_wr;
  require(result == (full ? ENOMEM : 0), "a receive is taken unless the ring is full");
  if (full) return false;
  end.ref.post_receive(direction.next_receive, sges);
  ++direction.next_receive;
  return true;
}

bool Connection::post_receives(std::size_t side) {
  if (ends[side].srq != nullptr) {
    require(ends[side].qp->post_recv({0, {}}) == EINVAL, "buffers go to the shared queue");
    return ends[side].srq->refill();
  }
  if (ends[side].ref.state == QpState::kErr) return false;  // there they are flushed at the next doorbell only
  bool posted = false;
  std::uint32_t n = scenario_.has(Fault::kStarve) ? random_.below(3) : 30;
  for (; n != 0 && post_receive(side); --n) posted = true;
  return posted;
}

std::uint64_t Connection::place_of(std::size_t side, const Operation& op) const {
  const End& end = ends[side];
  if (end.srq != nullptr && op.is_send()) return end.srq->slots.address_of(end.ref.front_receive()->wr_id);
  return directions[1 - side].target.address + op.target;
}

void Connection::check_promise(std::size_t side, const Completion& completion) {
  if (completion.status != WcStatus::kSuccess) return;
  if (completion.opcode == WcOpcode::kBindWindow || completion.opcode == WcOpcode::kLocalInvalidate)
    return check_window(side, completion);
  if ((completion.flags & kWcWithInvalidate) != 0) check_window(side, completion);
  const bool received = completion.opcode == WcOpcode::kRecv || completion.opcode == WcOpcode::kRecvWithImm;
  const std::size_t sender = received ? 1 - side : side;
  Direction& direction = directions[sender];
  const SharedQueue* shared = received ? ends[side].srq : nullptr;
  const Operation& op = direction.operations.all[shared != nullptr ? direction.arriving : completion.wr_id];
  if (op.fetches()) return check_fetched(side, completion, op);
  if (received) {
    require(completion.byte_len == op.length, "a receive completion counts the message's bytes");
    require(!op.has_immediate() || completion.immediate == op.immediate, "an immediate arrives with its message");
    require((completion.flags == kWcWithImm) == op.has_immediate(), "an immediate arrives with its message");
  }
  const std::byte* sent = ends[sender].host->arena.at(direction.source.address + op.source);
  const bool in_slot = op.is_send() && ends[1 - sender].srq != nullptr;
  if (in_slot && !received) return;  // the slot may be another message's by now
  const std::uint64_t place =
      in_slot ? shared->slots.address_of(completion.wr_id) : direction.target.address + op.target;
  const std::byte* arrived = ends[1 - sender].host->arena.at(place);
  require(std::memcmp(sent, arrived, op.length) == 0, "no completion before its data");
}

void Connection::check_fetched(std::size_t side, const Completion& completion, const Operation& op) {
  const Direction& direction = directions[side];
  const std::byte* arrived = ends[side].host->arena.at(direction.landing.address + op.target);
  if (op.opcode == WrOpcode::kRead) {
    const std::byte* there = ends[1 - side].host->arena.at(directions[1 - side].source.address + op.source);
    require(std::memcmp(there, arrived, op.length) == 0, "no READ completes before its data");
  } else {
    require(std::memcmp(&direction.originals[completion.wr_id], arrived, kAtomicBytes) == 0,
            "an atomic brings back what it found, once");
  }
}

}  // namespace tensorwire::transport::faults
