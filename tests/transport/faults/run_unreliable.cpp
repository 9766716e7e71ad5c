// Unreliable connections (UC) beside the reliable ones, over the same adversary. Messages arrive whole, or nobody hears
// of them; each is made of its own packets, in order; what is not taken is counted under the right name.
#include <algorithm>
#include <cstring>

#include "run.hpp"
#include "transport/datagram.hpp"
#include "transport/queue_pair.hpp"
#include "violation.hpp"

namespace tensorwire::transport::faults {

void Run::make_unreliable() {
  for (std::uint32_t i = 0; i < scenario_.unreliable; ++i) {
    const std::size_t a = unreliable_.below(scenario_.hosts);
    const std::size_t b = (a + 1 + unreliable_.below(scenario_.hosts - 1)) % scenario_.hosts;
    for (const std::size_t host : {a, b}) {
      UnreliableEnd& end = unreliable_ends_.emplace_back(scenario_, unreliable_, hits_, hosts_[host], host);
      const auto side = static_cast<std::uint32_t>(host == a ? 0 : 1);
      end.create(i << 4 | (14U + side), unreliable_.below(3) == 0 ? shared_[host] : nullptr,
                 scenario_.whole ? kDefaultPath : paths_[host]);
      unanswered_at_[host].push_back(&end);
    }
    UnreliableEnd& first = unreliable_ends_[2 * i];
    UnreliableEnd& second = unreliable_ends_[2 * i + 1];
    const std::uint32_t family = unreliable_.below(scenario_.families);
    const auto mtu = static_cast<MtuCode>(1 + unreliable_.below(unreliable_.below(4) == 0 ? 5 : 1));
    first.connect(second, family, mtu);
    second.connect(first, family, mtu);
  }
}

UnreliableEnd* Run::unreliable_end(std::size_t host, std::uint32_t qpn) noexcept {
  const auto found = std::find_if(unreliable_ends_.begin(), unreliable_ends_.end(),
                                  [&](const UnreliableEnd& end) { return end.host_number == host && end.qpn == qpn; });
  return found == unreliable_ends_.end() ? nullptr : &*found;
}

bool Run::post_unreliable(UnreliableEnd& end) {
  bool posted = end.recover(now_);
  posted |= end.post_receives();
  posted |= end.post_sends(now_);
  settle(end.host_number);
  return posted && !end.finished();
}

/// The application drains a send queue, or the seed does harm.
void Run::disturb_unreliable() {
  UnreliableEnd& end = unreliable_ends_[unreliable_.below(static_cast<std::uint32_t>(unreliable_ends_.size()))];
  switch (unreliable_.below(8)) {
    case 0:
      if (scenario_.has(Fault::kAbort)) end.abort(now_);
      break;
    case 1:
      if (scenario_.has(Fault::kRestart)) end.restart(now_);
      break;
    case 2:
      if (!scenario_.has(Fault::kDeregister)) break;
      hits_(Point::kUcDeregister);
      end.deregister();
      break;
    case 3:
      if (scenario_.has(Fault::kForge)) forge_unreliable(end);
      break;
    default:
      end.drain(now_, unreliable_);
  }
  settle(end.host_number);
  if (datagram_ends_.empty()) return;
  DatagramEnd& datagrams = datagram_ends_[unreliable_.below(static_cast<std::uint32_t>(datagram_ends_.size()))];
  datagrams.drain(now_, unreliable_);
  settle(datagrams.host_number);
}

// ---- egress

void Run::label_unreliable(Packet& packet, const TxDesc& desc, UnreliableEnd& end) {
  packet = {};
  packet.to = static_cast<std::uint8_t>(end.peer().host_number);
  packet.source = end.gid;
  packet.flow = {end.gid, end.peer().gid, 0, wire::kRoceUdpPort};
  packet.label.truth = Truth::kGenuine;
  packet.label.service = Service::kUnreliable;
  packet.label.connection =
      static_cast<std::uint8_t>(std::find_if(unreliable_ends_.begin(), unreliable_ends_.end(),
                                             [&](const UnreliableEnd& other) { return &other == &end; }) -
                                unreliable_ends_.begin());
  packet.label.life = end.life;
  if (desc.headers.opcode == wire::Opcode::kCnp) {
    hits_(Point::kUcCnpSent);
    return end.ref.congestion.on_cnp_sent(desc, end.peer().qpn, end.peer().gid);
  }
  require(desc.av->traffic_class == (end.traffic_class | ecn_bits()), "a packet has its class and ECN bits");
  packet.label.number = end.ref.sent();
  packet.label.operation = static_cast<std::uint32_t>(end.ref.upcoming().wr_id);
  packet.label.offset = end.ref.offset();
  end.ref.on_sent(desc);
}

void Run::launch_unreliable(std::size_t number, const TxDesc& desc, Leaving& leaving) {
  Packet& packet = leaving.packet;
  if (desc.headers.opcode == wire::Opcode::kCnp) return adversary_.send(number, std::move(packet), leaving.departure);
  const UnreliableEnd::Message& message = unreliable_ends_[packet.label.connection].messages[packet.label.operation];
  const std::byte* payload = packet.bytes.data() + wire::header_bytes(desc.headers.opcode);
  const std::byte* truth = hosts_[number].arena.at(message.source) + packet.label.offset;
  require(desc.payload_bytes == 0 || std::memcmp(payload, truth, desc.payload_bytes) == 0,
          "a packet carries the bytes of its message");
  adversary_.send(number, std::move(packet), leaving.departure);
}

// ---- ingress

void Run::deliver_unreliable(const Packet& packet, const wire::Parsed& parsed, UnreliableEnd& end) {
  const wire::Headers& headers = parsed.headers;
  const auto bytes = static_cast<std::uint32_t>(parsed.payload_bytes);
  const PacketSource source = source_of(packet, true);
  const Judgement judgement = end.ref.judge(headers, bytes, source);
  trace_.arrived(now_, packet.to, headers, bytes, judgement, packet.label.truth);
  const RxVerdict verdict = end.host->engine.classify(headers, bytes, source, now_);
  expect_verdict(verdict, judgement);
  if (verdict.action == RxAction::kDrop) return hits_(drop_point(verdict.drop));
  require(verdict.verify_first, "a packet that nobody repeats is verified before it is placed");
  const Arrival arrival = place(packet.bytes, parsed, verdict, packet.flow, packet.ip_id);
  const bool corrupt = packet.label.truth == Truth::kCorrupt;
  if (arrival == Arrival::kBadIcrc) {
    require(corrupt, "a packet that nobody touched has a right ICRC");
    return hits_(Point::kUcBadIcrc);
  }
  require(!corrupt, "a corrupt packet is found by its ICRC");
  if (arrival == Arrival::kMemoryGone) {
    trace_.note(now_, packet.to, "target memory gone");
    end.host->engine.reject(verdict, headers, now_);
    end.ref.reject(headers);
    return settle(packet.to);
  }
  if (verdict.action == RxAction::kPlace) {
    end.host->arena.expect(judgement.address, {packet.bytes.data() + parsed.header_bytes, bytes});
    require(end.host->arena.intact(judgement.address, bytes), "only the packet's bytes are written");
  }
  if (judgement.plan == RxPlan::kExecute) follow_message(packet.label, headers, bytes, judgement, end);
  const EngineCounters before = end.host->engine.counters();
  end.host->engine.commit(verdict, headers, bytes, now_);
  expect_congestion(source, headers, before, *end.host, end.ref.congestion);
  end.ref.commit(judgement, headers, bytes);
  expect_counted(before, end.host->engine.counters(), judgement.plan);
  settle(packet.to);
}

void Run::expect_counted(const EngineCounters& before, const EngineCounters& after, RxPlan plan) {
  const bool ended = plan != RxPlan::kExecute && plan != RxPlan::kCongestion;
  const auto one = [](bool wanted) { return wanted ? 1U : 0U; };
  require(after.rx_dropped - before.rx_dropped == one(ended) &&
              after.out_of_sequence - before.out_of_sequence == one(plan == RxPlan::kGap) &&
              after.out_of_buffer - before.out_of_buffer == one(plan == RxPlan::kNotReady) &&
              after.resp_local_length_error - before.resp_local_length_error == one(plan == RxPlan::kTooLong) &&
              after.resp_remote_access_errors - before.resp_remote_access_errors == one(plan == RxPlan::kRemoteAccess),
          "what ends a message is counted under its name");
}

/// A packet is taken: a message is made of its own packets, all of them, one after the other.
void Run::follow_message(const Label& label, const wire::Headers& headers, std::uint32_t bytes,
                         const Judgement& judgement, UnreliableEnd& end) {
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  UnreliableEnd::Arriving& arriving = end.arriving;
  const Label before = arriving.last;
  arriving.last = label;
  if (label.truth == Truth::kForged || (!traits.begins() && !arriving.trusted)) {
    arriving.trusted = false;
    return;
  }
  arriving.trusted = true;
  UnreliableEnd::Message& message = end.peer().messages[label.operation];
  if (traits.begins()) {
    require(label.offset == 0, "a message begins with its first packet");
  } else {
    require(label.life == before.life && label.operation == before.operation && label.number == before.number + 1,
            "a message is made of its own packets, one after the other");
  }
  if (traits.write && bytes != 0)
    require(judgement.address == message.target + label.offset, "bytes go to their place in the message");
  if (!traits.ends()) return;

  require(label.offset + bytes == message.length, "a message arrives whole");
  hits_(Point::kUcWhole);
  if (label.life != end.peer().life) hits_(Point::kUcOldLife);
  if (message.delivered++ != 0) hits_(Point::kUcTwice);
  const std::byte* sent = end.peer().host->arena.at(message.source);
  if (traits.send) {
    arrived_.sent = {sent, message.length};
  } else if (message.length != 0) {
    require(std::memcmp(end.host->arena.at(message.target), sent, message.length) == 0, "a WRITE arrives whole");
  }
}

/// Nobody sent it. To an unreliable connection whoever knows its numbers can write what he may.
void Run::forge_unreliable(UnreliableEnd& victim) {
  const std::uint32_t mtu = victim.ref.config.mtu;
  Packet packet;
  packet.to = static_cast<std::uint8_t>(victim.host_number);
  packet.source = victim.peer().gid;
  packet.flow = {victim.peer().gid, victim.gid, static_cast<std::uint16_t>(unreliable_.next()), wire::kRoceUdpPort};
  packet.label.service = Service::kUnreliable;
  wire::Headers h;
  h.opcode = static_cast<wire::Opcode>(0x20 + unreliable_.below(12));
  h.dest_qpn = victim.qpn;
  h.psn = victim.ref.expected();
  std::uint32_t bytes = unreliable_.below(2) == 0 ? mtu : unreliable_.below(2 * mtu);
  h.va = victim.target().address + unreliable_.below(static_cast<std::uint32_t>(victim.target().size));
  h.rkey = victim.target().key;
  h.dma_length = bytes + unreliable_.below(2) * mtu;
  switch (unreliable_.below(8)) {
    case 0:
      h.psn = static_cast<std::uint32_t>(unreliable_.next()) & wire::kPsnMask;
      break;
    case 1:
      packet.source = stranger(packet.flow.is_ipv4());
      packet.flow.source = packet.source;
      break;
    case 2:
      h.pkey = static_cast<std::uint16_t>(unreliable_.next());
      break;
    case 3:
      h.opcode = static_cast<wire::Opcode>(unreliable_.below(0x13));  // RC
      break;
    case 4:
      bytes = mtu_bytes(MtuCode::k4096) + 4;
      break;
    default:
      break;
  }
  hits_(Point::kUcForged);
  inject(std::move(packet), h, bytes);
}

}  // namespace tensorwire::transport::faults
