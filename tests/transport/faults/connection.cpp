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
constexpr std::uint32_t kMaxLives = 400;

MtuCode choose_mtu(Random& random) {
  constexpr std::array kWeighted = {MtuCode::k256, MtuCode::k256,  MtuCode::k256,  MtuCode::k256,  MtuCode::k256,
                                    MtuCode::k512, MtuCode::k1024, MtuCode::k1024, MtuCode::k2048, MtuCode::k4096};
  return kWeighted[random.below(kWeighted.size())];
}

}  // namespace

Connection::Connection(const Scenario& scenario, Random& random, Hits& hits, SimHost& a, SimHost& b)
    : ends{End{a, hits}, End{b, hits}}, scenario_(scenario), random_(random), hits_(hits) {}

void Connection::create(std::uint8_t index, std::uint32_t operations) {
  index_ = index;
  mtu_ = choose_mtu(random_);
  rd_atomic_ = static_cast<std::uint8_t>(1 + random_.below(random_.below(2) == 0 ? 3 : kMaxRdAtomic));
  const std::uint32_t family = random_.below(scenario_.families);
  if (family != 0) hits_(family == 1 ? Point::kLinkLocal : Point::kRoutable);
  for (std::size_t side = 0; side < 2; ++side) {
    End& end = ends[side];
    end.qpn = (random_.below(1U << 20) << 4 | (2U * index_ + static_cast<std::uint32_t>(side))) & wire::kQpnMask;
    if (end.qpn == 0) end.qpn = 1U << 20;
    end.caps = {1 + random_.below(scenario_.deepest_queue), 1 + random_.below(scenario_.deepest_queue), 4, 4,
                kMaxInline};
    if (end.srq != nullptr) end.ref.share(end.srq->ref);
    end.send_cq = &end.host->choose_cq(random_);
    end.recv_cq = &end.host->choose_cq(random_);
    end.gid = end.host->gids[family];
    end.traffic_class = static_cast<std::uint8_t>(random_.below(64) << 2);
    if (scenario_.credits) end.credits = static_cast<End::Credits>(random_.below(3));
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
  const std::uint32_t windows = windows_random_ != nullptr ? kAccessWindowBind : 0;
  direction.source = host.zone(direction.operations.source_bytes, kAccessRemoteRead | windows);
  std::byte* bytes = host.arena.at(direction.source.address);
  for (std::uint64_t i = 0; i < direction.source.size; i += 8) {
    const std::uint64_t word = random_.next();
    std::memcpy(bytes + i, &word, std::min<std::uint64_t>(8, direction.source.size - i));
  }
  host.arena.expect(direction.source.address, {bytes, direction.source.size});
  direction.target = peer.zone(direction.operations.target_bytes, kAccessLocalWrite | kAccessRemoteWrite | windows);
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
  init.send_cq = &end.send_cq->queue;
  init.recv_cq = &end.recv_cq->queue;
  init.caps = end.caps;
  if (end.srq != nullptr) init.srq = &end.srq->engine;
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
  c.peer = ends[1 - side].gid;
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
  c.dcqcn = scenario_.engine.dcqcn;
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
    case QpState::kSqd:
      hits_(Point::kSqdToReset);
      break;
    case QpState::kErr:
      hits_(Point::kErrToReset);
      break;
    default:
      break;
  }
  if (end.send_cq->overrun() || end.recv_cq->overrun() || (end.ref.state != QpState::kReset && random_.below(3) == 0)) {
    hits_(Point::kDestroyed);
    replace_qp(end);
  } else {
    require(engine.modify_qp(*end.qp, {}, kAttrState, now) == 0, "any state goes to RESET");
  }
  if (end.ref.holds()) {
    hits_(Point::kSrqHeldForgotten);
    end.srq->slots.give_back(end.ref.front_receive()->wr_id);
  }
  end.life = life;
  renew_window(side);
  directions[1 - side].next_receive = directions[1 - side].first_operation;
  make_agreement(side);
  end.ref.reset(end.wanted);
  end.step_at = now + random_.below(3) * kMicrosecond;
}

/// Destroyed and made again, on completion queues that work.
void Connection::replace_qp(End& end) {
  end.host->engine.destroy_qp(*end.qp);
  require(end.host->engine.find_qp(end.qpn) == nullptr, "a destroyed queue pair is gone");
  end.send_cq = &end.host->fit(*end.send_cq);
  end.recv_cq = &end.host->fit(*end.recv_cq);
  create_qp(end);
}

void Connection::step(std::size_t side, Ps now) {
  End& end = ends[side];
  end.step_at = kNever;
  if (end.ref.state == QpState::kReset && (end.send_cq->overrun() || end.recv_cq->overrun())) replace_qp(end);
  if (end.ref.state == QpState::kErr) return;  // it failed before it was up
  if (end.ref.state == QpState::kInit && scenario_.has(Fault::kRestart) && random_.below(6) == 0)
    return join(side, now);  // its owner thought better of it
  const ReferenceConfig& c = end.wanted;
  QpAttr attr;
  attr.access_flags = c.access;
  attr.has_grh = true;
  attr.av.local = end.gid;
  attr.av.traffic_class = end.traffic_class;
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

// ---- what its queue pairs have

SimCq& Connection::queue_of(const End& end, const Completion& completion) noexcept {
  const bool received = completion.opcode == WcOpcode::kRecv || completion.opcode == WcOpcode::kRecvWithImm;
  return received ? *end.recv_cq : *end.send_cq;
}

void Connection::say_credits(std::size_t side, wire::Headers& headers) {
  const End& end = ends[side];
  if (end.credits == End::Credits::kNone || headers.syndrome / 32 != 0) return;
  if (end.credits == End::Credits::kAnything) {
    headers.syndrome = static_cast<std::uint8_t>(random_.below(32));
  } else if (end.srq == nullptr) {  // nobody can promise a shared queue's buffers
    headers.syndrome = ReferenceQp::credit_code(end.ref.receives_outstanding());
  }
}

Packet Connection::blank(std::size_t side, Truth truth) const {
  const End& from = ends[side];
  const End& to = ends[1 - side];
  Packet packet;
  packet.to = static_cast<std::uint8_t>(to.host_number);
  packet.source = from.gid;
  packet.flow = {from.gid, to.gid, 0, wire::kRoceUdpPort};
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
