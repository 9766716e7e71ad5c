#include "datagrams.hpp"

#include <cerrno>

#include "transport/queue_pair.hpp"

namespace tensorwire::transport::faults {
namespace {

constexpr std::uint32_t kUdMaxInline = 64;
constexpr std::uint32_t kSourceBytes = 4608;
constexpr std::uint32_t kMaxPayload = 4096;
constexpr std::uint32_t kUdInitMask = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrQkey;

}  // namespace

const DatagramEnd::Kind DatagramEnd::kKind = {.type = QpType::kUd,
                                              .name = "datagrams",
                                              .max_inline = kUdMaxInline,
                                              .source_bytes = kSourceBytes,
                                              .abort = Point::kUdAbort,
                                              .restart = Point::kUdRestart,
                                              .from_sqe_to_rts = Point::kSqeToRts};

DatagramEnd::DatagramEnd(const Scenario& scenario, Random& random, Hits& hits, SimHost& on, std::size_t number)
    : UnansweredEnd(kKind, scenario, random, hits, on, number), ref(on.registrations, hits) {
  number_of_sends_ = 8 + random.below(16);
}

void DatagramEnd::create(std::uint8_t number, SharedQueue* shared) {
  qpn = (random_.below(1U << 20) << 4 | (8U + number)) & wire::kQpnMask;
  constexpr std::array kSlotBytes = {64U, 300U, 1064U, kMaxPayload + ReferenceUd::kHeaderBytes};
  UnansweredEnd::create(shared, kSlotBytes[random_.below(kSlotBytes.size())]);
  bring_up(0);
}

void DatagramEnd::bring_up(Ps now) {
  ReferenceConfig config;
  config.qpn = qpn;
  config.pd = host->pd;
  config.mtu = kMaxPayload;
  config.qkey = kFirstQkey + random_.below(kQkeys);
  config.sq_psn = random_.below(1U << 24);
  ref.reset(config);
  QpAttr attr;
  attr.state = QpState::kInit;
  attr.qkey = config.qkey;
  attr.sq_psn = config.sq_psn;
  modify(attr, kUdInitMask, now);
  attr.state = QpState::kRtr;
  modify(attr, kAttrState, now);
  SendWr early;
  require(qp->post_send(early) == EINVAL, "datagrams are not taken before RTS");
  attr.state = QpState::kRts;
  modify(attr, kAttrState | kAttrSqPsn, now);
}

// ---- sends

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
  send.wr_id = posted();
  send.length = random_.below(3) == 0 ? address.max_payload - random_.below(2) : random_.below(300);
  from = source_.address + random_.below(kSourceBytes - send.length + 1);
  send.opcode = random_.below(2) == 0 ? WrOpcode::kSendImm : WrOpcode::kSend;
  send.immediate = static_cast<std::uint32_t>(random_.next());
  send.signaled = random_.below(3) != 0;
  send.solicited = random_.below(2) == 0;
  send.inline_data = send.length <= kUdMaxInline && random_.below(2) == 0;
  send.av = address.av;
  send.dest_qpn = target.qpn;
  send.qkey = random_.below(8) == 0 ? kFirstQkey + random_.below(kQkeys + 1) : target.qkey;
  if (random_.below(8) == 0) send.qkey |= kPrivilegedQkey;
  send.sges = send.inline_data ? inline_list(from, send.length) : source_list(from, send.length);
  return send;
}

bool DatagramEnd::post_send(std::span<const Target> targets, std::span<SimHost* const> hosts, Ps now) {
  if (all_posted()) return false;
  const Target& target = targets[random_.below(static_cast<std::uint32_t>(targets.size()))];
  DatagramAddress address = choose_address(*hosts[target.host]);
  std::uint64_t from = 0;
  const ReferenceUd::Send send = choose_send(target, address, from);
  SendWr wr;
  wr.address = &address;
  wr.dest_qpn = send.dest_qpn;
  wr.qkey = send.qkey;
  if (!post(wr, send, now)) return false;
  address = {};  // copied when posted
  datagrams.push_back({from, send.length, target.host});
  return true;
}

bool DatagramEnd::post_sends(std::span<const Target> targets, std::span<SimHost* const> hosts, Ps now) {
  if (ref.state != QpState::kRts && random_.below(8) != 0) return false;
  bool posted = false;
  for (std::uint32_t n = 1 + random_.below(4); n != 0 && post_send(targets, hosts, now); --n) posted = true;
  return posted;
}

}  // namespace tensorwire::transport::faults
