#include "unreliable.hpp"

#include <algorithm>
#include <cerrno>

#include "operation.hpp"
#include "transport/queue_pair.hpp"

namespace tensorwire::transport::faults {
namespace {

constexpr std::uint32_t kUcMaxInline = 64;
constexpr std::uint32_t kZoneBytes = 24 * 1024;
constexpr std::uint32_t kUcInitMask = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags;
constexpr std::uint32_t kRtrMask = kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;

}  // namespace

const UnreliableEnd::Kind UnreliableEnd::kKind = {.type = QpType::kUc,
                                                  .name = "unreliable connection",
                                                  .max_inline = kUcMaxInline,
                                                  .source_bytes = kZoneBytes,
                                                  .abort = Point::kUcAbort,
                                                  .restart = Point::kUcRestart,
                                                  .from_sqe_to_rts = Point::kUcSqeToRts};

UnreliableEnd::UnreliableEnd(const Scenario& scenario, Random& random, Hits& hits, SimHost& on, std::size_t number)
    : UnansweredEnd(kKind, scenario, random, hits, on, number), ref(on.registrations, hits) {
  number_of_sends_ = 16 + random.below(32);
}

void UnreliableEnd::create(std::uint32_t qp_number, SharedQueue* shared, PathId on_path) {
  qpn = (random_.below(1U << 19) << 5 | qp_number) & wire::kQpnMask;
  path = on_path;
  constexpr std::array kSlotBytes = {64U, 1024U, 2048U, 8192U};
  UnansweredEnd::create(shared, kSlotBytes[random_.below(kSlotBytes.size())]);
  target_ = host->zone(kZoneBytes, kAccessLocalWrite | kAccessRemoteWrite);
}

void UnreliableEnd::connect(UnreliableEnd& peer, std::uint32_t family, MtuCode mtu) {
  peer_ = &peer;
  gid = host->gids[family];
  peer.gid = peer.host->gids[family];
  mtu_ = mtu;
  bring_up(0);
}

void UnreliableEnd::bring_up(Ps now) {
  ReferenceConfig config;
  config.qpn = qpn;
  config.peer_qpn = peer_->qpn;
  config.peer = peer_->gid;
  config.pd = host->pd;
  config.access = scenario_.has(Fault::kDefect) && random_.below(8) == 0 ? 0 : kAccessRemoteWrite;
  config.mtu = mtu_bytes(mtu_);
  config.dcqcn = scenario_.engine.dcqcn;
  config.sq_psn = life++ != 0             ? ref.config.sq_psn + kLivesApart + random_.below(kLivesApart)
                  : random_.below(2) == 0 ? wire::kPsnMask - random_.below(60)  // soon at the wrap
                                          : random_.below(1U << 24);
  config.sq_psn &= wire::kPsnMask;
  config.rq_psn = random_.below(1U << 24);
  ref.start(config);
  arriving = {};
  register_again();

  QpAttr attr;
  attr.state = QpState::kInit;
  attr.access_flags = config.access;
  attr.has_grh = true;
  attr.av.local = gid;
  attr.av.remote = config.peer;
  attr.av.traffic_class = traffic_class = static_cast<std::uint8_t>(random_.below(64) << 2);
  attr.dest_qpn = config.peer_qpn;
  attr.path_mtu = mtu_;
  attr.rq_psn = config.rq_psn;
  modify(attr, kUcInitMask, now);
  attr.state = QpState::kRtr;
  modify(attr, kRtrMask, now);
  SendWr early;
  require(qp->post_send(early) == EINVAL, "messages are not taken before RTS");
}

void UnreliableEnd::register_again() {
  for (Zone* zone : {&source_, &target_})
    if (zone->key == 0 && zone->size != 0) zone->key = host->enroll(zone->address, zone->size, zone->rights, host->pd);
}

void UnreliableEnd::deregister() {
  Zone& zone = random_.below(2) == 0 ? source_ : target_;
  if (zone.key == 0) return;
  host->withdraw(zone.key);
  zone.key = 0;
}

// ---- sends

void UnreliableEnd::name_target(Message& message, ReferenceUnanswered::Send& send) {
  const Zone& zone = peer_->target_;
  message.target = zone.address + random_.below(kZoneBytes - message.length + 1);
  send.remote_address = message.target;
  send.rkey = zone.key;
  if (!random_.chance(scenario_.defect)) return;
  switch (random_.below(7)) {
    case 0:
      send.rkey ^= 0x5a5a'0001U;
      return;
    case 1:
      send.rkey = zone.other_domain;
      return;
    case 2:
      send.rkey = zone.no_right;
      return;
    case 3:
      send.rkey = zone.deregistered;
      return;
    case 4:
      send.remote_address = zone.end() - message.length + 1;
      return;
    case 5:
      send.remote_address = zone.address - 1;
      return;
    default:
      send.remote_address = ~std::uint64_t{0} - random_.below(message.length + 1);
  }
}

ReferenceUnanswered::Send UnreliableEnd::choose_send(Message& message) {
  constexpr std::array kOpcodes = {WrOpcode::kSend, WrOpcode::kSendImm, WrOpcode::kWrite, WrOpcode::kWriteImm};
  ReferenceUnanswered::Send send{};
  send.wr_id = posted();
  send.opcode = message.opcode = kOpcodes[random_.below(kOpcodes.size())];
  send.length = message.length = std::min(choose_length(random_, mtu_bytes(mtu_)), kZoneBytes);
  message.source = source_.address + random_.below(kZoneBytes - send.length + 1);
  send.immediate = static_cast<std::uint32_t>(random_.next());
  send.signaled = random_.below(3) != 0;
  send.solicited = random_.below(2) == 0;
  send.inline_data = send.length <= kUcMaxInline && random_.below(2) == 0;
  send.sges = send.inline_data ? inline_list(message.source, send.length) : source_list(message.source, send.length);
  if (!is_send(send.opcode)) name_target(message, send);
  return send;
}

bool UnreliableEnd::post_send(Ps now) {
  if (all_posted()) return false;
  Message message;
  const ReferenceUnanswered::Send send = choose_send(message);
  SendWr wr;
  wr.remote_address = send.remote_address;
  wr.rkey = send.rkey;
  if (!post(wr, send, now)) return false;
  messages.push_back(message);
  return true;
}

bool UnreliableEnd::post_sends(Ps now) {
  if (random_.below(4) == 0) register_again();
  if (ref.state == QpState::kRtr) {
    if (random_.below(3) != 0) return false;
    QpAttr attr;
    attr.state = QpState::kRts;
    attr.sq_psn = ref.config.sq_psn;
    modify(attr, kAttrState | kAttrSqPsn, now);
  }
  if (!can_send(ref.state) && random_.below(8) != 0) return false;
  bool posted = false;
  for (std::uint32_t n = 1 + random_.below(4); n != 0 && post_send(now); --n) posted = true;
  return posted;
}

}  // namespace tensorwire::transport::faults
