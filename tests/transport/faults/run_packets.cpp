// A seed's packets: out of an engine, through the adversary, into an engine; and what is checked on the way.
#include <algorithm>
#include <cstring>
#include <optional>

#include "run.hpp"
#include "transport/datagram.hpp"
#include "transport/queue_pair.hpp"
#include "transport/scheduler.hpp"
#include "violation.hpp"

namespace tensorwire::transport::faults {
namespace {

constexpr std::size_t kLinkFramingBytes = 66;
constexpr Ps kPsPerByte = 80;  // 100 Gb/s

bool is_response(const wire::Headers& headers) { return wire::traits(headers.opcode).response; }

}  // namespace

Point Run::drop_point(DropReason reason) {
  switch (reason) {
    case DropReason::kUnknownQp:
      return Point::kDropUnknownQp;
    case DropReason::kWrongState:
      return Point::kDropWrongState;
    case DropReason::kWrongSource:
      return Point::kDropWrongSource;
    case DropReason::kWrongPkey:
      return Point::kDropWrongPkey;
    case DropReason::kWrongOpcode:
      return Point::kDropWrongOpcode;
    case DropReason::kOutOfSequence:
      return Point::kDropOutOfSequence;
    case DropReason::kStale:
      return Point::kDropStale;
    case DropReason::kBadLength:
      return Point::kDropBadLength;
    case DropReason::kWrongQkey:
      return Point::kUdWrongQkey;
    case DropReason::kNoReceive:  // the judgement says which of both
    case DropReason::kNone:
      break;
  }
  throw Violation("a dropped packet has a reason");
}

// ---- egress

void Run::transmit(std::size_t number) {
  SimHost& host = hosts_[number];
  std::array<TxDesc, kLargestBatch> batch;
  note_pace(number);
  const std::size_t room = 1 + random_.below(largest_batch_);
  const std::uint64_t budget = random_.below(2) == 0 ? 64 * 1024 : random_.below(8'192);
  const std::size_t count = host.engine.next_tx(now_, budget, {batch.data(), room});
  host.egress_free = std::max(host.egress_free, now_);
  for (UnansweredEnd* end : unanswered_at_[number]) end->reference().on_next_tx();

  std::array<Leaving, batch.size()> leaving;
  for (std::size_t i = 0; i < count; ++i) {
    const TxDesc& desc = batch[i];
    auto& [packet, departure] = leaving[i];
    const std::size_t bytes = kLinkFramingBytes + wire::header_bytes(desc.headers.opcode) + desc.payload_bytes;
    host.egress_free += static_cast<Ps>(bytes) * kPsPerByte;
    departure = host.egress_free;
    trace_.sent(now_, number, desc.headers, desc.payload_bytes, desc.retransmission);
    if (DatagramEnd* end = datagram_end(number, desc.src_qpn)) {
      label_datagram(packet, desc, *end);
      continue;
    }
    if (UnreliableEnd* end = unreliable_end(number, desc.src_qpn)) {
      label_unreliable(packet, desc, *end);
      continue;
    }
    const auto [connection, side] = owner(number, desc.src_qpn);
    require(connection != nullptr, "a packet belongs to a queue pair");
    ReferenceQp& ref = connection->ends[side].ref;
    packet = connection->blank(side, Truth::kGenuine);
    if (desc.headers.opcode == wire::Opcode::kCnp) {
      ref.congestion.on_cnp_sent(desc, ref.config.peer_qpn, ref.config.peer);
      continue;
    }
    require(desc.av->traffic_class == (connection->ends[side].traffic_class | ecn_bits()),
            "a packet has its class and ECN bits");
    // A local request closes a window between two of these packets: control packets come behind it, a response that is
    // not the next one was.
    const bool reply = is_response(desc.headers);
    if (reply &&
        (desc.headers.opcode == wire::Opcode::kRcAck || !ref.replies_pending() || desc.headers.psn != ref.reply_psn()))
      ref.observe_local(host.engine.memory());
    if (desc.headers.opcode == wire::Opcode::kRcAck) {
      discover_failure(connection->ends[side]);  // the NAK that says so may leave at once
      ref.on_answer_sent(desc);
    } else if (reply) {
      ref.on_reply_sent(desc);
    } else {
      label_request(packet, desc, *connection, side);
      ref.on_request_sent(desc, now_);
    }
    if (wire::traits(desc.headers.opcode).aeth) connection->say_credits(side, batch[i].headers);
  }
  for (std::size_t i = 0; i < owner_count_[number]; ++i)
    owners_[number][i].connection->ends[owners_[number][i].side].ref.observe_local(host.engine.memory());
  expect_pace(number, {batch.data(), count});
  settle(number);
  workspace_.packets += count;
  if (count != 0) launch(number, {batch.data(), count}, {leaving.data(), count});
}

void Run::launch(std::size_t host, std::span<const TxDesc> descs, std::span<Leaving> leaving) {
  for (std::size_t i = 0; i < descs.size(); ++i) launch_packet(host, descs[i], leaving[i]);
}

void Run::launch_packet(std::size_t number, const TxDesc& desc, Leaving& leaving) {
  SimHost& host = hosts_[number];
  Packet& packet = leaving.packet;
  packet.flow.source_port = desc.av->udp_source_port;
  packet.traffic_class = desc.av->traffic_class;
  packet.ip_id = host.ip_id++;
  packet.bytes = adversary_.take_buffer();
  packet.bytes.resize(datagram_bytes(desc));
  if (!serialise(desc, wire::icrc_begin(packet.flow, packet.bytes.size(), packet.ip_id), packet.bytes)) {
    adversary_.give_buffer(std::move(packet.bytes));
    host.engine.tx_failed(desc, now_);
    return lose_source(number, desc);
  }
  if (packet.label.service == Service::kUnreliable) return launch_unreliable(number, desc, leaving);
  if (packet.label.service == Service::kDatagram) return launch_datagram(number, desc, leaving);
  if (packet.label.request && desc.payload_bytes != 0) {
    const Direction& direction = connections_[packet.label.connection].directions[packet.label.side];
    const Operation& op = direction.operations.all[packet.label.operation];
    const std::byte* truth = host.arena.at(direction.source.address + op.source) + packet.label.offset;
    const std::byte* payload = packet.bytes.data() + wire::header_bytes(desc.headers.opcode);
    require(std::memcmp(payload, truth, desc.payload_bytes) == 0, "a packet carries the bytes of its request");
  }
  adversary_.send(number, std::move(packet), leaving.departure);
}

/// After tx_failed().
void Run::lose_source(std::size_t number, const TxDesc& desc) {
  trace_.note(now_, number, "source memory gone");
  for (UnansweredEnd* end : unanswered_at_[number]) {
    if (end->qpn != desc.src_qpn) continue;
    end->reference().on_source_lost(desc.headers.psn);
    return settle(number);
  }
  const auto [connection, side] = owner(number, desc.src_qpn);
  ReferenceQp& ref = connection->ends[side].ref;
  if (is_response(desc.headers)) {
    ref.on_reply_lost(desc.headers.psn);
  } else {
    ref.on_source_lost(desc.headers.psn);
  }
  settle(number);
}

void Run::label_request(Packet& packet, const TxDesc& desc, Connection& connection, std::size_t side) {
  const ReferenceQp& ref = connection.ends[side].ref;
  const ReferenceQp::Send& send = ref.send_of(ref.next);
  packet.label.request = true;
  packet.label.number = ref.next;
  packet.label.operation = static_cast<std::uint32_t>(send.wr_id);
  packet.label.offset = static_cast<std::uint32_t>(ref.next - send.first) * ref.config.mtu;
  require(packet.label.offset + desc.payload_bytes <= send.length, "a packet carries its share of the message");
}

// ---- ingress

void Run::deliver(Packet packet) {
  wire::Parsed parsed;
  if (wire::parse(packet.bytes, parsed) == wire::ParseStatus::kOk) {
    deliver_parsed(packet, parsed);
  } else {
    require(packet.label.truth != Truth::kGenuine, "an engine's packet can be parsed");
    hits_(Point::kDropUnparsed);
  }
  adversary_.give_buffer(std::move(packet.bytes));
}

void Run::deliver_parsed(const Packet& packet, const wire::Parsed& parsed) {
  SimHost& host = hosts_[packet.to];
  const wire::Headers& headers = parsed.headers;
  const auto bytes = static_cast<std::uint32_t>(parsed.payload_bytes);
  if (DatagramEnd* end = datagram_end(packet.to, headers.dest_qpn)) return deliver_datagram(packet, parsed, *end);
  if (UnreliableEnd* end = unreliable_end(packet.to, headers.dest_qpn)) return deliver_unreliable(packet, parsed, *end);
  const PacketSource source = source_of(packet, wire::traits(headers.opcode).deth);
  const auto [connection, side] = owner(packet.to, headers.dest_qpn);
  Judgement judgement;
  judgement.drop = DropReason::kUnknownQp;
  if (connection != nullptr) {
    judgement = connection->ends[side].ref.judge(headers, bytes, source);
    if (would_deceive(packet.label, headers, judgement, *connection, side)) return;
  }
  trace_.arrived(now_, packet.to, headers, bytes, judgement, packet.label.truth);

  const RxVerdict verdict = host.engine.classify(headers, bytes, source, now_);
  expect_verdict(verdict, judgement);
  if (verdict.action == RxAction::kDrop) {
    if (headers.opcode == wire::Opcode::kCnp && verdict.drop == DropReason::kWrongSource) hits_(Point::kCnpStranger);
    return hits_(drop_point(verdict.drop));
  }
  place_packet(packet, parsed, verdict, judgement, *connection, side);
}

/// Whether it says of requests that they were executed which the peer has not seen.
bool Run::lies(const wire::Headers& headers, const Judgement& judgement, const Connection& connection,
               std::size_t side) noexcept {
  const ReferenceQp& ref = connection.ends[side].ref;
  const ReferenceQp& peer = connection.ends[1 - side].ref;
  std::uint64_t end = 0;  // of what it acknowledges
  if (judgement.plan == RxPlan::kAcknowledge) {
    end = ref.una + (headers.psn - ref.psn(ref.una)) % (1U << 24) + (headers.syndrome / 32 == 0 ? 1 : 0);
  } else {
    end = ref.first_fetch()->first;
  }
  const bool same_life = connection.ends[0].life == connection.ends[1].life;
  return end > ref.una && (!same_life || end > peer.executed);
}

/// Somebody who knows every number can act for the peer; that is not what forgeries are to show.
bool Run::would_deceive(const Label& label, const wire::Headers& headers, const Judgement& judgement,
                        const Connection& connection, std::size_t side) noexcept {
  if (label.truth != Truth::kForged) return false;
  if (judgement.plan == RxPlan::kExecute || judgement.plan == RxPlan::kResponse) return true;
  // Credits: at worst the requester is careful, or is refused.
  return is_answer(judgement.plan) && judgement.plan != RxPlan::kCredits && lies(headers, judgement, connection, side);
}

void Run::expect_verdict(const RxVerdict& verdict, const Judgement& judgement) const {
  require(verdict.action == judgement.action, "a packet is judged by the rules: drop, control or place");
  require(verdict.drop == judgement.drop, "a packet is dropped for the first rule that it breaks");
  if (verdict.action == RxAction::kDrop) return;
  require(verdict.plan == static_cast<std::uint8_t>(judgement.plan), "a packet gets the answer that the rules name");
  if (verdict.action != RxAction::kPlace) return;
  require(verdict.verify_first == judgement.verify_first, "First and Only are verified before they are placed");
  std::uint64_t address = judgement.address;
  for (std::size_t i = 0; i < verdict.piece_count; ++i) {
    require(verdict.pieces[i].address == address, "bytes go where the request says");
    address += verdict.pieces[i].length;
  }
  require(address == judgement.address + judgement.bytes, "all bytes are placed, and no more");
}

void Run::place_packet(const Packet& packet, const wire::Parsed& parsed, const RxVerdict& verdict,
                       const Judgement& judgement, Connection& connection, std::size_t side) {
  SimHost& host = hosts_[packet.to];
  End& end = connection.ends[side];
  const wire::Headers& headers = parsed.headers;
  const auto bytes = static_cast<std::uint32_t>(parsed.payload_bytes);
  const Arrival arrival = place(packet.bytes, parsed, verdict, packet.flow, packet.ip_id);
  const bool corrupt = packet.label.truth == Truth::kCorrupt;
  const bool places = verdict.action == RxAction::kPlace && (!corrupt || !verdict.verify_first);
  if (places && arrival != Arrival::kMemoryGone) {
    host.arena.expect(judgement.address, {packet.bytes.data() + parsed.header_bytes, bytes});
    require(host.arena.intact(judgement.address, bytes), "only the packet's bytes are written");
  }
  switch (arrival) {
    case Arrival::kBadIcrc:
      require(corrupt, "a packet that nobody touched has a right ICRC");
      return hits_(places ? Point::kDropIcrcPlaced : Point::kDropIcrc);
    case Arrival::kMemoryGone:
      trace_.note(now_, packet.to, "target memory gone");
      host.engine.reject(verdict, headers, now_);
      end.ref.reject(judgement, headers, now_);
      return settle(packet.to);
    case Arrival::kGood:
      break;
  }
  require(!corrupt, "a corrupt packet is found by its ICRC");
  const Before before = expect_commit(packet.label, headers, bytes, judgement, connection, side);
  host.engine.commit(verdict, headers, bytes, now_);
  committed(packet.label, headers, bytes, source_of(packet, false), judgement, before, end);
}

/// What came names a memory window.
void Run::count_window(const Judgement& judgement) {
  if (judgement.point == Point::kExecuteRead || judgement.point == Point::kExecute) hits_(Point::kWindowUsed);
  if (judgement.point == Point::kAccessKey) hits_(Point::kWindowClosed);
  if (judgement.point == Point::kAccessRange) hits_(Point::kWindowRange);
}

Run::Before Run::expect_commit(const Label& label, const wire::Headers& headers, std::uint32_t bytes,
                               const Judgement& judgement, Connection& connection, std::size_t side) {
  const End& end = connection.ends[side];
  Direction& direction = connection.directions[1 - side];
  if (wire::traits(headers.opcode).reth && end.window.has(headers.rkey)) count_window(judgement);
  if (judgement.plan == RxPlan::kExecute) {
    require(label.life == end.life && label.number == end.ref.executed, "requests are executed in order");
    const Operation& op = direction.operations.all[label.operation];
    direction.arriving = label.operation;
    require(bytes == 0 || judgement.address == connection.place_of(side, op) + label.offset,
            "bytes go to their place in the message");
  }
  ReferenceQp::Memory memory{.gone = end.host->memory.failing_stores != 0};
  if (wire::traits(headers.opcode).atomic_eth && judgement.plan == RxPlan::kExecute && !memory.gone)
    memory.original = expect_atomic(label, headers, end.host->arena, direction);
  if (headers.opcode == wire::Opcode::kRcAtomicAck && judgement.plan == RxPlan::kResponse && !memory.gone)
    expect_original(headers, connection, side);
  return {memory, end.host->engine.counters()};
}

void Run::committed(const Label& label, const wire::Headers& headers, std::uint32_t bytes, const PacketSource& source,
                    const Judgement& judgement, const Before& before, End& end) {
  expect_congestion(source, headers, before.counters, *end.host, end.ref.congestion);
  end.ref.commit(judgement, headers, bytes, now_, before.memory);
  if (wire::traits(headers.opcode).atomic_eth && label.truth == Truth::kGenuine)
    require(!end.host->arena.holds(headers.va, kAtomicBytes) || end.host->arena.intact(headers.va, kAtomicBytes),
            "an atomic is executed once");
  settle(end.host_number);
}

/// What an atomic does to the memory that the model has; returns what it finds.
std::uint64_t Run::expect_atomic(const Label& label, const wire::Headers& headers, Arena& arena, Direction& direction) {
  const std::uint64_t original = arena.expected_word(headers.va);
  std::uint64_t now = original + headers.swap_add;
  if (headers.opcode == wire::Opcode::kRcCompareSwap) now = original == headers.compare ? headers.swap_add : original;
  arena.expect(headers.va, std::as_bytes(std::span(&now, 1)));
  direction.originals[label.operation] = original;
  return original;
}

/// The answer to an atomic is written where its request says, by the engine itself.
void Run::expect_original(const wire::Headers& headers, Connection& connection, std::size_t side) {
  End& end = connection.ends[side];
  const ReferenceQp::Send& send = *end.ref.first_fetch();
  require(headers.original == connection.directions[side].originals[send.wr_id], "an atomic brings back what it found");
  for (const Sge& sge : send.sges.span())
    if (sge.length != 0 && end.host->registrations.check(sge.lkey, end.host->pd, sge.address, sge.length,
                                                         kAccessLocalWrite) != AccessResult::kOk)
      return;
  end.host->arena.expect(send.sges.items[0].address, std::as_bytes(std::span(&headers.original, 1)));
}

}  // namespace tensorwire::transport::faults
