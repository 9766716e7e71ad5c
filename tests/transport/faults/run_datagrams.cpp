// Datagrams (UD) beside the connections: over the same adversary, to the same hosts. What is delivered is what was
// sent; what is not is dropped under the right name; and whatever happens to them, the connections do not notice.
#include <algorithm>
#include <cstring>

#include "run.hpp"
#include "transport/datagram.hpp"
#include "transport/queue_pair.hpp"
#include "violation.hpp"

namespace tensorwire::transport::faults {

void Run::make_datagrams() {
  for (std::uint32_t i = 0; i < scenario_.datagrams; ++i) {
    const std::size_t host = random_.below(scenario_.hosts);
    DatagramEnd& end = datagram_ends_.emplace_back(scenario_, random_, hits_, hosts_[host], host);
    end.create(static_cast<std::uint8_t>(i), random_.below(3) == 0 ? shared_[host] : nullptr);
    unanswered_at_[host].push_back(&end);
    for (int n = 0; n < 6; ++n) datagram_targets_.push_back({host, end.qpn, end.ref.config.qkey});
  }
  // Queue pairs of another service, and of nobody.
  for (const Connection& connection : connections_)
    datagram_targets_.push_back({connection.ends[0].host_number, connection.ends[0].qpn, kFirstQkey});
  datagram_targets_.push_back({0, 0x123450, kFirstQkey});
}

DatagramEnd* Run::datagram_end(std::size_t host, std::uint32_t qpn) noexcept {
  const auto found = std::find_if(datagram_ends_.begin(), datagram_ends_.end(),
                                  [&](const DatagramEnd& end) { return end.host_number == host && end.qpn == qpn; });
  return found == datagram_ends_.end() ? nullptr : &*found;
}

bool Run::post_datagrams(std::size_t index) {
  DatagramEnd& end = datagram_ends_[index];
  bool posted = end.recover(now_);
  posted |= end.post_receives();
  posted |= end.post_sends(datagram_targets_, host_list_, now_);
  settle(end.host_number);
  return posted && !end.finished();
}

void Run::disturb_datagrams(Fault fault) {
  DatagramEnd& end = datagram_ends_[random_.below(static_cast<std::uint32_t>(datagram_ends_.size()))];
  if (fault == Fault::kAbort) end.abort(now_);
  if (fault == Fault::kRestart) end.restart(now_);
  settle(end.host_number);
}

// ---- egress

void Run::label_datagram(Packet& packet, const TxDesc& desc, DatagramEnd& end) {
  const ReferenceUd::Send send = end.ref.upcoming();
  end.ref.on_sent(desc);
  const DatagramEnd::Datagram& datagram = end.datagrams[send.wr_id];
  packet = {};
  packet.to = static_cast<std::uint8_t>(datagram.to_host);
  packet.source = send.av.local;
  packet.flow = {send.av.local, send.av.remote, 0, wire::kRoceUdpPort};
  packet.label.truth = Truth::kGenuine;
  packet.label.service = Service::kDatagram;
  packet.label.connection = static_cast<std::uint8_t>(
      std::find_if(datagram_ends_.begin(), datagram_ends_.end(), [&](const DatagramEnd& e) { return &e == &end; }) -
      datagram_ends_.begin());
  packet.label.operation = static_cast<std::uint32_t>(send.wr_id);
}

void Run::launch_datagram(std::size_t number, const TxDesc& desc, Leaving& leaving) {
  Packet& packet = leaving.packet;
  const DatagramEnd::Datagram& datagram = datagram_ends_[packet.label.connection].datagrams[packet.label.operation];
  const std::byte* payload = packet.bytes.data() + wire::header_bytes(desc.headers.opcode);
  require(std::memcmp(payload, hosts_[number].arena.at(datagram.address), datagram.length) == 0,
          "a datagram carries the bytes of its request");
  adversary_.send(number, std::move(packet), leaving.departure);
}

// ---- ingress

/// A link that carries whole messages has no datagrams: they take the packets' way.
PacketSource Run::source_of(const Packet& packet, bool datagram) const noexcept {
  PacketSource source;
  source.address = packet.source;
  source.mtu = scenario_.whole && !datagram ? kMaxMessageBytes : mtu_bytes(MtuCode::k4096);
  source.destination = packet.flow.destination;
  source.traffic_class = packet.traffic_class;
  source.congestion_experienced = (packet.traffic_class & 3) == 3;
  return source;
}

void Run::deliver_datagram(const Packet& packet, const wire::Parsed& parsed, DatagramEnd& end) {
  const wire::Headers& headers = parsed.headers;
  const auto bytes = static_cast<std::uint32_t>(parsed.payload_bytes);
  const PacketSource source = source_of(packet, wire::traits(headers.opcode).deth);
  const Judgement judgement = end.ref.judge(headers, bytes, source);
  trace_.arrived(now_, packet.to, headers, bytes, judgement, packet.label.truth);
  const EngineCounters before = end.host->engine.counters();
  const RxVerdict verdict = end.host->engine.classify(headers, bytes, source, now_);
  const EngineCounters& after = end.host->engine.counters();
  expect_verdict(verdict, judgement);
  require(after.qkey_viol_cntr - before.qkey_viol_cntr == (judgement.drop == DropReason::kWrongQkey ? 1 : 0) &&
              after.out_of_buffer - before.out_of_buffer == (judgement.point == Point::kUdNoReceive ? 1 : 0) &&
              after.resp_local_length_error - before.resp_local_length_error ==
                  (judgement.point == Point::kUdTooSmall ? 1 : 0) &&
              after.rx_dropped - before.rx_dropped == (judgement.action == RxAction::kDrop ? 1 : 0),
          "a dropped datagram is counted under its name");
  if (verdict.action != RxAction::kDrop) return place_datagram(packet, parsed, verdict, judgement, source, end);
  if (judgement.point != Point::kCount) return hits_(judgement.point);
  hits_(judgement.drop == DropReason::kWrongQkey ? Point::kUdWrongQkey : Point::kDropWrongPkey);
}

void Run::place_datagram(const Packet& packet, const wire::Parsed& parsed, const RxVerdict& verdict,
                         const Judgement& judgement, const PacketSource& source, DatagramEnd& end) {
  SimHost& host = *end.host;
  const wire::Headers& headers = parsed.headers;
  const auto bytes = static_cast<std::uint32_t>(parsed.payload_bytes);
  const bool corrupt = packet.label.truth == Truth::kCorrupt;
  require(verdict.verify_first, "a datagram is verified before it is placed");
  const Arrival arrival = place(packet.bytes, parsed, verdict, packet.flow, packet.ip_id);
  if (arrival == Arrival::kBadIcrc) {
    require(corrupt, "a packet that nobody touched has a right ICRC");
    return hits_(Point::kUdBadIcrc);
  }
  require(!corrupt, "a corrupt packet is found by its ICRC");
  if (arrival == Arrival::kMemoryGone) {
    trace_.note(now_, packet.to, "target memory gone");
    hits_(Point::kUdMemoryGone);
    host.engine.reject(verdict, headers, now_);
    end.ref.reject(headers);
    return settle(packet.to);
  }
  arrived_.sent = {packet.bytes.data() + parsed.header_bytes, bytes};
  if (packet.label.truth == Truth::kGenuine) {
    DatagramEnd& sender = datagram_ends_[packet.label.connection];
    DatagramEnd::Datagram& datagram = sender.datagrams[packet.label.operation];
    require(datagram.length == bytes, "a datagram arrives whole");
    arrived_.sent = {sender.host->arena.at(datagram.address), datagram.length};
    if (judgement.plan == RxPlan::kExecute && datagram.delivered++ != 0) hits_(Point::kUdReceivedTwice);
  }
  if (verdict.action == RxAction::kPlace) {
    arrived_.network_header = ReferenceUd::network_header(headers, bytes, source);
    arrived_.header = arrived_.network_header;
    host.arena.expect(judgement.address, arrived_.header);
    host.arena.expect(judgement.address + arrived_.header.size(), arrived_.sent);
    require(host.arena.intact(judgement.address, judgement.bytes), "only the datagram and its header are written");
    if (!source.address.is_ipv4()) hits_(Point::kUdReceivedIpv6);
    if (end.srq != nullptr) hits_(Point::kUdReceivedShared);
  }
  host.engine.commit(verdict, headers, bytes, now_);
  end.ref.commit(judgement, headers, bytes);
  settle(packet.to);
}

/// Nobody sent it; whoever knows the Q_Key may be heard, so some of them are.
void Run::forge_datagram() {
  const DatagramEnd& victim = datagram_ends_[random_.below(static_cast<std::uint32_t>(datagram_ends_.size()))];
  const std::uint32_t family = random_.below(scenario_.families);
  Packet packet;
  packet.to = static_cast<std::uint8_t>(victim.host_number);
  packet.source = addresses_of(random_.below(8))[family];
  packet.flow = {packet.source, victim.host->gids[family], static_cast<std::uint16_t>(random_.next()),
                 wire::kRoceUdpPort};
  packet.traffic_class = static_cast<std::uint8_t>(random_.next());
  packet.label.service = Service::kDatagram;
  wire::Headers h;
  h.opcode = random_.below(2) == 0 ? wire::Opcode::kUdSendOnly : wire::Opcode::kUdSendOnlyImm;
  h.dest_qpn = victim.qpn;
  h.psn = static_cast<std::uint32_t>(random_.next()) & wire::kPsnMask;
  h.qkey = kFirstQkey + random_.below(kQkeys + 1);
  h.src_qpn = static_cast<std::uint32_t>(random_.next()) & wire::kQpnMask;
  std::uint32_t bytes = random_.below(2'000);
  switch (random_.below(8)) {
    case 0:
      bytes = mtu_bytes(MtuCode::k4096) + random_.below(64);
      break;
    case 1:
      h.pkey = static_cast<std::uint16_t>(random_.below(4) == 0 ? 0x7fff : random_.next());
      break;
    case 2:
      h.opcode = static_cast<wire::Opcode>(random_.below(0x15));
      break;
    default:
      break;
  }
  hits_(Point::kUdForged);
  inject(std::move(packet), h, bytes);
}

}  // namespace tensorwire::transport::faults
