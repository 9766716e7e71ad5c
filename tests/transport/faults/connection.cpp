#include "connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/attributes.hpp"
#include "transport/queue_pair.hpp"
#include "transport/timing.hpp"

namespace tensorwire::transport::faults {
namespace {

constexpr std::uint32_t kMaxInline = 128;
/// PSNs of two lives of a direction stay further apart than any window: a packet of an earlier life must not pass for
/// one of this life. (On a real fabric the number is random and the peer's old packets die out meanwhile.)
constexpr std::uint32_t kLivesApart = 1U << 13;
constexpr std::uint32_t kMaxLives = 400;

MtuCode choose_mtu(Random& random) {
  constexpr std::array kWeighted = {MtuCode::k256, MtuCode::k256,  MtuCode::k256,  MtuCode::k256,  MtuCode::k256,
                                    MtuCode::k512, MtuCode::k1024, MtuCode::k1024, MtuCode::k2048, MtuCode::k4096};
  return kWeighted[random.below(kWeighted.size())];
}

}  // namespace

Connection::Connection(const Scenario& scenario, Random& random, Hits& hits, SimHost& a, SimHost& b)
    : ends{End{a, hits}, End{b, hits}}, scenario_(scenario), random_(random), hits_(hits) {}

void Connection::create(std::uint8_t index, PathId path_a, PathId path_b, std::uint32_t operations) {
  index_ = index;
  mtu_ = choose_mtu(random_);
  rd_atomic_ = static_cast<std::uint8_t>(1 + random_.below(random_.below(2) == 0 ? 3 : kMaxRdAtomic));
  for (std::size_t side = 0; side < 2; ++side) {
    End& end = ends[side];
    end.qpn = (random_.below(1U << 20) << 4 | (2U * index_ + static_cast<std::uint32_t>(side))) & wire::kQpnMask;
    if (end.qpn == 0) end.qpn = 1U << 20;
    end.path = side == 0 ? path_a : path_b;
    end.caps = {1 + random_.below(30), 1 + random_.below(30), 4, 4, kMaxInline};
    create_qp(end);
    Direction& direction = directions[side];
    direction.operations.choose(random_, operations, mtu_bytes(mtu_), kMaxInline, scenario_.defect);
    make_zones(side);
  }
  for (std::size_t side = 0; side < 2; ++side) choose_fetch_sources(side);
  new_life();
}

void Connection::make_zones(std::size_t side) {
  Direction& direction = directions[side];
  SimHost& host = *ends[side].host;
  SimHost& peer = *ends[1 - side].host;
  direction.source = host.zone(direction.operations.source_bytes, kAccessRemoteRead);
  std::byte* bytes = host.arena.at(direction.source.address);
  for (std::uint64_t i = 0; i < direction.source.size; i += 8) {
    const std::uint64_t word = random_.next();
    std::memcpy(bytes + i, &word, std::min<std::uint64_t>(8, direction.source.size - i));
  }
  host.arena.expect(direction.source.address, {bytes, direction.source.size});
  direction.target = peer.zone(direction.operations.target_bytes, kAccessLocalWrite | kAccessRemoteWrite);
  direction.landing = host.zone(direction.operations.landing_bytes, kAccessLocalWrite);
  direction.words = peer.zone(kWords * kAtomicBytes, kAccessLocalWrite | kAccessRemoteAtomic);
  const std::array<std::byte, kWords * kAtomicBytes> zero{};
  std::memcpy(peer.arena.at(direction.words.address), zero.data(), zero.size());
  peer.arena.expect(direction.words.address, zero);
  direction.originals.resize(direction.operations.all.size());
}

/// READs read what the peer sends from, which never changes.
void Connection::choose_fetch_sources(std::size_t side) {
  const auto room = static_cast<std::uint32_t>(directions[1 - side].source.size);
  for (Operation& op : directions[side].operations.all) {
    if (is_atomic(op.opcode)) op.source = std::uint64_t{random_.below(kWords)} * kAtomicBytes;
    if (op.opcode != WrOpcode::kRead) continue;
    op.length = std::min(op.length, room);
    op.source = random_.below(room - op.length + 1);
  }
}

void Connection::create_qp(End& end) {
  QpInit init;
  init.qpn = end.qpn;
  init.pd = end.host->pd;
  init.send_cq = init.recv_cq = &end.host->cq;
  init.caps = end.caps;
  end.qp = &end.host->engine.create_qp(init);
}

// ---- lives

std::uint32_t Connection::choose_psn(const Direction& direction) {
  for (;;) {
    const std::uint32_t psn =
        random_.below(2) == 0 ? wire::kPsnMask - random_.below(60) : random_.below(1U << 24);  // soon at the wrap
    bool apart = true;
    for (const auto& [first, count] : direction.psn_history) {
      const std::uint32_t ahead = (psn - first) & wire::kPsnMask;
      apart = apart && ahead > count + kLivesApart && ahead < (1U << 24) - kLivesApart;
    }
    if (apart) return psn;
  }
}

void Connection::new_life() {
  require(++life < kMaxLives, "a connection is of use at last");
  recover_at = kNever;
  for (std::size_t side = 0; side < 2; ++side) {
    Direction& direction = directions[side];
    psn_[side] = choose_psn(direction);
    direction.psn_history.emplace_back(psn_[side], kLivesApart);
    direction.first_operation = direction.next_operation;
    for (Zone* zone : {&direction.source, &direction.landing, &direction.target, &direction.words}) {
      if (zone->key != 0) continue;
      const bool here = zone == &direction.source || zone == &direction.landing;
      SimHost& host = *ends[here ? side : 1 - side].host;
      zone->key = host.enroll(zone->address, zone->size, zone->rights, host.pd);
    }
  }
}

void Connection::make_agreement(std::size_t side) {
  End& end = ends[side];
  ReferenceConfig& c = end.wanted;
  c.qpn = end.qpn;
  c.peer_qpn = ends[1 - side].qpn;
  c.peer = ends[1 - side].host->gid;
  c.pd = end.host->pd;
  c.access = test::kEveryAccess;
  if (scenario_.has(Fault::kDefect) && random_.below(8) == 0) c.access &= ~(kAccessRemoteWrite << random_.below(3));
  c.mtu = mtu_bytes(mtu_);
  c.whole = end.whole;
  c.sq_psn = psn_[side];
  c.rq_psn = psn_[1 - side];
  end.timeout_code = static_cast<std::uint8_t>(5 + random_.below(3));
  c.timeout = ack_timeout(end.timeout_code);
  c.retry_cnt = static_cast<std::uint8_t>(random_.below(3) == 0 ? random_.below(8) : 7);
  c.rnr_retry = static_cast<std::uint8_t>(random_.below(3) == 0 ? random_.below(7) : 7);
  c.min_rnr_timer = static_cast<std::uint8_t>(1 + random_.below(10));
  c.ack_coalesce = scenario_.engine.ack_coalesce;
  c.window = scenario_.engine.qp_window_bytes;
  c.path_window = scenario_.path_window;
  c.rd_atomic = c.dest_rd_atomic = rd_atomic_;
  if (scenario_.has(Fault::kDefect) && random_.below(8) == 0)
    c.dest_rd_atomic = static_cast<std::uint8_t>(random_.below(rd_atomic_));
}

void Connection::join(std::size_t side, Ps now) {
  End& end = ends[side];
  Engine& engine = end.host->engine;
  switch (end.ref.state) {
    case QpState::kInit:
      hits_(Point::kInitToReset);
      break;
    case QpState::kRtr:
      hits_(Point::kRtrToReset);
      break;
    case QpState::kRts:
      hits_(Point::kRtsToReset);
      break;
    case QpState::kErr:
      hits_(Point::kErrToReset);
      break;
    default:
      break;
  }
  if (end.ref.state != QpState::kReset && random_.below(3) == 0) {
    hits_(Point::kDestroyed);
    engine.destroy_qp(*end.qp);
    require(engine.find_qp(end.qpn) == nullptr, "a destroyed queue pair is gone");
    create_qp(end);
  } else {
    require(engine.modify_qp(*end.qp, {}, kAttrState, now) == 0, "any state goes to RESET");
  }
  end.life = life;
  directions[1 - side].next_receive = directions[1 - side].first_operation;
  make_agreement(side);
  end.ref.reset(end.wanted);
  end.step_at = now + random_.below(3) * kMicrosecond;
}

void Connection::step(std::size_t side, Ps now) {
  End& end = ends[side];
  end.step_at = kNever;
  if (end.ref.state == QpState::kErr) return;  // it failed before it was up
  if (end.ref.state == QpState::kInit && scenario_.has(Fault::kRestart) && random_.below(6) == 0)
    return join(side, now);  // its owner thought better of it
  const ReferenceConfig& c = end.wanted;
  QpAttr attr;
  attr.access_flags = c.access;
  attr.has_grh = true;
  attr.av.local = end.host->gid;
  attr.av.remote = c.peer;
  attr.dest_qpn = c.peer_qpn;
  attr.path_mtu = mtu_;
  attr.rq_psn = c.rq_psn;
  attr.sq_psn = c.sq_psn;
  attr.timeout = end.timeout_code;
  attr.retry_cnt = c.retry_cnt;
  attr.rnr_retry = c.rnr_retry;
  attr.min_rnr_timer = c.min_rnr_timer;
  attr.max_rd_atomic = c.rd_atomic;
  attr.max_dest_rd_atomic = c.dest_rd_atomic;
  std::uint32_t mask = 0;
  switch (end.ref.state) {
    case QpState::kReset:
      attr.state = QpState::kInit;
      mask = test::kInitMask;
      hits_(Point::kResetToInit);
      break;
    case QpState::kInit:
      attr.state = QpState::kRtr;
      mask = test::kRtrMask;
      hits_(Point::kInitToRtr);
      break;
    default:
      attr.state = QpState::kRts;
      mask = test::kRtsMask;
      hits_(Point::kRtrToRts);
  }
  SendWr early;
  require(end.qp->post_send(early) == EINVAL, "requests are not taken before RTS");
  require(end.host->engine.modify_qp(*end.qp, attr, mask, now, end.path) == 0, "a legal transition succeeds");
  end.ref.state = attr.state;
  if (attr.state != QpState::kRts) end.step_at = now + random_.below(6) * kMicrosecond;
}

void Connection::abort(std::size_t side, Ps now) {
  End& end = ends[side];
  QpAttr attr;
  attr.state = QpState::kErr;
  require(end.host->engine.modify_qp(*end.qp, attr, kAttrState, now) == 0, "any state goes to ERR");
  end.ref.set_error();
  hits_(Point::kFaultAbort);
}

bool Connection::failed() const noexcept {
  return ends[0].ref.state == QpState::kErr || ends[1].ref.state == QpState::kErr || ends[0].life != ends[1].life;
}

bool Connection::up() const noexcept {
  return ends[0].ref.state == QpState::kRts && ends[1].ref.state == QpState::kRts && ends[0].life == ends[1].life;
}

bool Connection::finished() const noexcept {
  for (std::size_t side = 0; side < 2; ++side)
    if (!directions[side].all_posted() || ends[side].ref.sends_pending() || ends[side].step_at != kNever) return false;
  return true;
}

// ---- the application

SgeList Connection::cut(std::uint64_t address, std::uint32_t length, std::uint32_t key) {
  SgeList sges;
  while (sges.count < 3 && random_.below(2) == 0) {
    const std::uint32_t part = random_.below(length + 1);
    sges.add({address, part, key});
    address += part;
    length -= part;
  }
  if (length != 0 || random_.below(2) == 0) sges.add({address, length, key});
  return sges;
}

void Connection::send_list(std::size_t side, const Operation& op, SgeList& sges) {
  const Zone& zone = op.fetches() ? directions[side].landing : directions[side].source;
  const std::uint64_t address = zone.address + (op.fetches() ? op.target : op.source);
  if (op.inline_data) {  // taken when posted: what the memory holds afterwards does not count
    scratch_.resize(kMaxInline);
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
  if (end.ref.state != QpState::kRts && end.ref.state != QpState::kErr) return false;
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
  wr.sges = sges.span();
  const int result = end.qp->post_send(wr);
  const bool full = end.ref.sends_outstanding() == end.caps.max_send_wr;
  require(result == (full ? ENOMEM : 0), "a request is taken unless the ring is full");
  if (full) return false;
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
  if (ends[side].ref.state == QpState::kErr) return false;  // there they are flushed at the next doorbell only
  bool posted = false;
  std::uint32_t n = scenario_.has(Fault::kStarve) ? random_.below(3) : 30;
  for (; n != 0 && post_receive(side); --n) posted = true;
  return posted;
}

void Connection::check_promise(std::size_t side, const Completion& completion) {
  if (completion.status != WcStatus::kSuccess) return;
  const bool received = completion.opcode == WcOpcode::kRecv || completion.opcode == WcOpcode::kRecvWithImm;
  const std::size_t sender = received ? 1 - side : side;
  Direction& direction = directions[sender];
  const Operation& op = direction.operations.all[completion.wr_id];
  if (op.fetches()) return check_fetched(side, completion, op);
  if (received) {
    require(completion.byte_len == op.length, "a receive completion counts the message's bytes");
    require(!op.has_immediate() || completion.immediate == op.immediate, "an immediate arrives with its message");
    require((completion.flags == kWcWithImm) == op.has_immediate(), "an immediate arrives with its message");
  }
  const std::byte* sent = ends[sender].host->arena.at(direction.source.address + op.source);
  const std::byte* arrived = ends[1 - sender].host->arena.at(direction.target.address + op.target);
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

Packet Connection::blank(std::size_t side, Truth truth) const {
  const End& from = ends[side];
  const End& to = ends[1 - side];
  Packet packet;
  packet.to = static_cast<std::uint8_t>(to.host_number);
  packet.source = from.host->gid;
  packet.flow = {from.host->gid, to.host->gid, 0, wire::kRoceUdpPort};
  packet.label.truth = truth;
  packet.label.connection = index_;
  packet.label.side = static_cast<std::uint8_t>(side);
  packet.label.life = from.life;
  return packet;
}

std::string Connection::describe() const {
  std::string text;
  for (std::size_t side = 0; side < 2; ++side) {
    const End& end = ends[side];
    const ReferenceQp& r = end.ref;
    text += fmt::format(
        "  connection {} side {} qpn {:06x} host {}: life {} state {} una {} next {} high {} executed {} sends {} "
        "receives {} posted {}/{} deadline {}\n",
        index_, side, end.qpn, end.host_number, end.life, static_cast<int>(r.state), r.una, r.next, r.high, r.executed,
        r.sends_outstanding(), r.receives_outstanding(), directions[side].next_operation,
        directions[side].operations.all.size(), r.deadline == kNever ? -1 : r.deadline / kNanosecond);
  }
  return text;
}

}  // namespace tensorwire::transport::faults
