#include "datagrams.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/queue_pair.hpp"

namespace tensorwire::transport::faults {
namespace {

constexpr std::uint32_t kMaxInline = 64;
constexpr std::uint32_t kSourceBytes = 4608;
constexpr std::uint32_t kMaxPayload = 4096;
constexpr std::uint32_t kInitMask = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrQkey;

}  // namespace

DatagramEnd::DatagramEnd(const Scenario& scenario, Random& random, Hits& hits, SimHost& on, std::size_t number)
    : host(&on),
      host_number(number),
      ref(on.registrations, hits),
      slots(scenario, random),
      scenario_(scenario),
      random_(random),
      hits_(hits),
      caps_{1 + random.below(12), 1 + random.below(12), 4, 4, kMaxInline},
      number_of_sends_(8 + random.below(16)) {}

void DatagramEnd::create(std::uint8_t number, SharedQueue* shared) {
  srq = shared;
  qpn = (random_.below(1U << 20) << 4 | (8U + number)) & wire::kQpnMask;
  if (srq != nullptr) ref.share(srq->ref);
  constexpr std::array kSlotBytes = {64U, 300U, 1064U, kMaxPayload + ReferenceUd::kHeaderBytes};
  slots.make(*host, host->pd, caps_.max_recv_wr + 2, kSlotBytes[random_.below(kSlotBytes.size())]);
  source_ = host->zone(kSourceBytes, 0);
  std::byte* bytes = host->arena.at(source_.address);
  for (std::uint32_t i = 0; i < kSourceBytes; ++i) bytes[i] = static_cast<std::byte>(random_.next());
  host->arena.expect(source_.address, {bytes, kSourceBytes});
  cq = &host->choose_cq(random_);
  create_qp();
  bring_up(0);
}

void DatagramEnd::create_qp() {
  QpInit init;
  init.type = QpType::kUd;
  init.qpn = qpn;
  init.pd = host->pd;
  init.send_cq = init.recv_cq = &cq->queue;
  init.caps = caps_;
  if (srq != nullptr) init.srq = &srq->engine;
  qp = &host->engine.create_qp(init);
}

void DatagramEnd::modify(QpState to, std::uint32_t mask, Ps now) {
  QpAttr attr;
  attr.state = to;
  attr.qkey = ref.config.qkey;
  attr.sq_psn = ref.config.sq_psn;
  require(host->engine.modify_qp(*qp, attr, mask, now) == 0, "a legal transition succeeds");
  ref.state = to;
}

void DatagramEnd::bring_up(Ps now) {
  ref.reset({qpn, host->pd, kFirstQkey + random_.below(kQkeys), static_cast<std::uint32_t>(random_.below(1U << 24))});
  modify(QpState::kInit, kInitMask, now);
  modify(QpState::kRtr, kAttrState, now);
  SendWr early;
  require(qp->post_send(early) == EINVAL, "datagrams are not taken before RTS");
  modify(QpState::kRts, kAttrState | kAttrSqPsn, now);
}

void DatagramEnd::abort(Ps now) {
  if (ref.state == QpState::kErr) return;
  hits_(Point::kUdAbort);
  QpAttr attr;
  attr.state = QpState::kErr;
  require(host->engine.modify_qp(*qp, attr, kAttrState, now) == 0, "any state goes to ERR");
  ref.set_error();
}

void DatagramEnd::restart(Ps now) {
  hits_(Point::kUdRestart);
  while (ref.receives_outstanding() != 0) {
    slots.give_back(ref.front_receive()->wr_id);
    ref.forget_receive();
  }
  if (cq->overrun() || random_.below(3) == 0) {
    host->engine.destroy_qp(*qp);
    cq = &host->fit(*cq);
    create_qp();
  } else {
    require(host->engine.modify_qp(*qp, {}, kAttrState, now) == 0, "any state goes to RESET");
  }
  bring_up(now);
}

bool DatagramEnd::recover(Ps now) {
  if (ref.state == QpState::kSqe && random_.below(4) == 0) {
    hits_(Point::kSqeToRts);
    modify(QpState::kRts, kAttrState, now);
    return true;
  }
  if (ref.state != QpState::kErr || random_.below(4) != 0) return false;
  restart(now);
  return true;
}

std::string DatagramEnd::describe() const {
  return fmt::format("  datagrams qpn {:06x} host {}: state {} sends {} given {} receives {} posted {}/{}{}\n", qpn,
                     host_number, static_cast<int>(ref.state), ref.sends_outstanding(), ref.given(),
                     ref.receives_outstanding(), datagrams.size(), number_of_sends_,
                     srq != nullptr ? ", shared queue" : "");
}

// ---- sends

SgeList DatagramEnd::source_list(std::uint64_t address, std::uint32_t length) {
  if (!random_.chance(scenario_.defect)) return cut(random_, address, length, source_.key);
  switch (random_.below(4)) {
    case 0:
      return cut(random_, address, length, source_.key ^ 0x5a5a'0001U);
    case 1:
      return cut(random_, address, length, source_.other_domain);
    case 2:
      return cut(random_, address, length, source_.deregistered);
    default: {
      SgeList sges;
      sges.add({source_.end() - length + 1, length, source_.key});
      return sges;
    }
  }
}

DatagramAddress DatagramEnd::choose_address(const SimHost& to) {
  const std::uint32_t family = random_.below(scenario_.families);
  DatagramAddress address;
  address.av.local = host->gids[family];
  address.av.remote = to.gids[family];
  address.av.traffic_class = static_cast<std::uint8_t>(random_.below(64) << 2);
  address.av.udp_source_port = static_cast<std::uint16_t>(0xc000 + random_.below(0x4000));
  address.max_payload = kMaxPayload >> random_.below(3);
  return address;
}

/// What is sent lies at `from`.
ReferenceUd::Send DatagramEnd::choose_send(const Target& target, const DatagramAddress& address, std::uint64_t& from) {
  ReferenceUd::Send send{};
  send.wr_id = datagrams.size();
  send.length = random_.below(3) == 0 ? address.max_payload - random_.below(2) : random_.below(300);
  from = source_.address + random_.below(kSourceBytes - send.length + 1);
  send.immediate_follows = random_.below(2) == 0;
  send.immediate = static_cast<std::uint32_t>(random_.next());
  send.signaled = random_.below(3) != 0;
  send.solicited = random_.below(2) == 0;
  send.inline_data = send.length <= kMaxInline && random_.below(2) == 0;
  send.av = address.av;
  send.dest_qpn = target.qpn;
  send.qkey = random_.below(8) == 0 ? kFirstQkey + random_.below(kQkeys + 1) : target.qkey;
  if (random_.below(8) == 0) send.qkey |= kPrivilegedQkey;
  if (send.inline_data) {
    scratch_.assign(host->arena.at(from), host->arena.at(from) + send.length);
    send.sges = cut(random_, reinterpret_cast<std::uintptr_t>(scratch_.data()), send.length, 0);
  } else {
    send.sges = source_list(from, send.length);
  }
  return send;
}

bool DatagramEnd::post_send(std::span<const Target> targets, std::span<SimHost* const> hosts, Ps now) {
  if (datagrams.size() == number_of_sends_) return false;
  const Target& target = targets[random_.below(static_cast<std::uint32_t>(targets.size()))];
  DatagramAddress address = choose_address(*hosts[target.host]);
  std::uint64_t from = 0;
  const ReferenceUd::Send send = choose_send(target, address, from);
  SendWr wr;
  wr.wr_id = send.wr_id;
  wr.opcode = send.immediate_follows ? WrOpcode::kSendImm : WrOpcode::kSend;
  wr.signaled = send.signaled;
  wr.solicited = send.solicited;
  wr.inline_data = send.inline_data;
  wr.immediate = send.immediate;
  wr.address = &address;
  wr.dest_qpn = send.dest_qpn;
  wr.qkey = send.qkey;
  wr.sges = send.sges.span();
  const int result = qp->post_send(wr);
  const bool full = ref.sends_outstanding() == caps_.max_send_wr;
  require(result == (full ? ENOMEM : 0), "a datagram is taken unless the ring is full");
  if (full) return false;
  address = {};  // copied when posted
  std::fill(scratch_.begin(), scratch_.end(), std::byte{0x3c});
  datagrams.push_back({from, send.length, target.host});
  ref.post_send(send);
  host->engine.doorbell(*qp, now);
  ref.doorbell();
  return true;
}

bool DatagramEnd::post_sends(std::span<const Target> targets, std::span<SimHost* const> hosts, Ps now) {
  if (ref.state != QpState::kRts && random_.below(8) != 0) return false;
  bool posted = false;
  for (std::uint32_t n = 1 + random_.below(4); n != 0 && post_send(targets, hosts, now); --n) posted = true;
  return posted;
}

void DatagramEnd::discover_failure() {
  // In ERR it may have been this failure's flush that was too much for the completion queue.
  const bool stopped = qp->state() == QpState::kSqe || qp->state() == QpState::kErr;
  if (stopped && ref.state == QpState::kRts && ref.given() == 0 && ref.source_broken()) ref.fail_source();
}

bool DatagramEnd::finished() const noexcept {
  return datagrams.size() == number_of_sends_ && ref.sends_outstanding() == 0;
}

// ---- receives

bool DatagramEnd::post_receive() {
  const std::uint64_t slot = slots.next();
  const SgeList sges = slots.list(slot);
  const int result = qp->post_recv({slot, sges.span()});
  const bool full = ref.receives_outstanding() == caps_.max_recv_wr;
  require(result == (full ? ENOMEM : 0), "a receive is taken unless the ring is full");
  if (full) return false;
  slots.posted();
  ref.post_receive({slot, sges});
  return true;
}

bool DatagramEnd::post_receives() {
  if (srq != nullptr) return srq->refill();
  if (ref.state == QpState::kErr) return false;
  bool posted = false;
  for (std::uint32_t n = random_.below(scenario_.has(Fault::kStarve) ? 2 : 6); n != 0 && post_receive(); --n)
    posted = true;
  return posted;
}

void DatagramEnd::check_received(std::uint64_t wr_id, std::span<const std::byte> header,
                                 std::span<const std::byte> sent) const {
  const std::uint64_t place = srq != nullptr ? srq->slots.address_of(wr_id) : slots.address_of(wr_id);
  const std::byte* at = host->arena.at(place);
  require(std::memcmp(at, header.data(), header.size()) == 0, "the packet's network header stands before a datagram");
  require(std::memcmp(at + header.size(), sent.data(), sent.size()) == 0, "a datagram arrives as it was sent");
}

}  // namespace tensorwire::transport::faults
