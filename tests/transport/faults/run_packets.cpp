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

constexpr std::size_t kFramingBytes = 66;
constexpr Ps kPsPerByte = 80;  // 100 Gb/s

Point drop_point(DropReason reason) {
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
    case DropReason::kWrongQkey:  // of datagrams, which are not simulated here
    case DropReason::kNoReceive:
    case DropReason::kNone:
      break;
  }
  throw Violation("a dropped packet has a reason");
}

bool is_response(const wire::Headers& headers) { return wire::traits(headers.opcode).response; }

}  // namespace

// ---- egress

void Run::transmit(std::size_t number) {
  SimHost& host = hosts_[number];
  std::array<TxDesc, 16> batch;
  const std::size_t room = 1 + random_.below(batch.size());
  const std::uint64_t budget = random_.below(2) == 0 ? 64 * 1024 : random_.below(8'192);
  const std::size_t count = host.engine.next_tx(now_, budget, {batch.data(), room});
  host.egress_free = std::max(host.egress_free, now_);

  std::array<Leaving, batch.size()> leaving;
  for (std::size_t i = 0; i < count; ++i) {
    const TxDesc& desc = batch[i];
    const auto [connection, side] = owner(number, desc.src_qpn);
    require(connection != nullptr, "a packet belongs to a queue pair");
    ReferenceQp& ref = connection->ends[side].ref;
    trace_.sent(now_, number, desc.headers, desc.payload_bytes, desc.retransmission);
    auto& [packet, departure] = leaving[i];
    packet = connection->blank(side, Truth::kGenuine);
    if (desc.headers.opcode == wire::Opcode::kRcAck) {
      discover_failure(connection->ends[side]);  // the NAK that says so may leave at once
      ref.on_answer_sent(desc);
    } else if (is_response(desc.headers)) {
      ref.on_reply_sent(desc);
    } else {
      label_request(packet, desc, *connection, side);
      ref.on_request_sent(desc, now_);
    }
    const std::size_t bytes = kFramingBytes + wire::header_bytes(desc.headers.opcode) + desc.payload_bytes;
    host.egress_free += static_cast<Ps>(bytes) * kPsPerByte;
    departure = host.egress_free;
  }
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
  packet.ip_id = host.ip_id++;
  packet.bytes = adversary_.take_buffer();
  packet.bytes.resize(datagram_bytes(desc));
  if (!serialise(desc, packet.flow, packet.ip_id, packet.bytes)) {
    adversary_.give_buffer(std::move(packet.bytes));
    host.engine.tx_failed(desc, now_);
    return lose_source(number, desc);
  }
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
  const PacketSource source{packet.source, scenario_.whole ? kMaxMessageBytes : mtu_bytes(MtuCode::k4096), false};
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
  if (verdict.action == RxAction::kDrop) return hits_(drop_point(verdict.drop));
  place_packet(packet, parsed, verdict, judgement, *connection, side);
}

/// Somebody who knows every number can act for the peer; that is not what forgeries are to show.
bool Run::would_deceive(const Label& label, const wire::Headers& headers, const Judgement& judgement,
                        const Connection& connection, std::size_t side) noexcept {
  if (label.truth != Truth::kForged) return false;
  if (judgement.plan == RxPlan::kExecute || judgement.plan == RxPlan::kResponse) return true;
  if (!is_answer(judgement.plan)) return false;
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
  const ReferenceQp::Memory memory = expect_commit(packet.label, headers, bytes, judgement, connection, side);
  host.engine.commit(verdict, headers, bytes, now_);
  committed(packet.label, headers, bytes, judgement, memory, end);
}

ReferenceQp::Memory Run::expect_commit(const Label& label, const wire::Headers& headers, std::uint32_t bytes,
                                       const Judgement& judgement, Connection& connection, std::size_t side) {
  const End& end = connection.ends[side];
  Direction& direction = connection.directions[1 - side];
  if (judgement.plan == RxPlan::kExecute) {
    require(label.life == end.life && label.number == end.ref.executed, "requests are executed in order");
    if (bytes != 0) {
      const Operation& op = direction.operations.all[label.operation];
      require(judgement.address == direction.target.address + op.target + label.offset,
              "bytes go to their place in the message");
    }
  }
  ReferenceQp::Memory memory{.gone = end.host->memory.failing_stores != 0};
  if (wire::traits(headers.opcode).atomic_eth && judgement.plan == RxPlan::kExecute && !memory.gone)
    memory.original = expect_atomic(label, headers, end.host->arena, direction);
  if (headers.opcode == wire::Opcode::kRcAtomicAck && judgement.plan == RxPlan::kResponse && !memory.gone)
    expect_original(headers, connection, side);
  return memory;
}

void Run::committed(const Label& label, const wire::Headers& headers, std::uint32_t bytes, const Judgement& judgement,
                    const ReferenceQp::Memory& memory, End& end) {
  end.ref.commit(judgement, headers, bytes, now_, memory);
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

// ---- after every event

void Run::settle(std::size_t number) {
  SimHost& host = hosts_[number];
  for (std::size_t i = 0; i < owner_count_[number]; ++i) {
    const auto [connection, side] = owners_[number][i];
    settle_end(*connection, side);
  }

  std::array<Completion, 64> polled;
  std::array<std::size_t, 8> seen{};
  for (std::size_t n = host.cq.poll(polled); n != 0; n = host.cq.poll(polled)) {
    for (std::size_t k = 0; k < n; ++k) {
      const Completion& got = polled[k];
      std::size_t i = 0;
      while (i < owner_count_[number] && owners_[number][i].connection->ends[owners_[number][i].side].qpn != got.qp_num)
        ++i;
      require(i < owner_count_[number], "a completion names its queue pair");
      const auto [connection, side] = owners_[number][i];
      const std::vector<Completion>& expected = connection->ends[side].ref.completions;
      require(seen[i] < expected.size(), "a request completes once");
      const Completion& want = expected[seen[i]++];
      require(got.status == want.status, "a request completes with the status that the rules name");
      require(got.wr_id == want.wr_id, "requests complete in order");
      if (got.status != WcStatus::kSuccess) continue;
      require(got.opcode == want.opcode && got.byte_len == want.byte_len && got.flags == want.flags &&
                  got.immediate == want.immediate && got.src_qp == want.src_qp,
              "a completion says what was done");
      connection->check_promise(side, got);
    }
  }
  for (std::size_t i = 0; i < owner_count_[number]; ++i) {
    const auto [connection, side] = owners_[number][i];
    std::vector<Completion>& expected = connection->ends[side].ref.completions;
    require(seen[i] == expected.size(), "every request completes");
    expected.clear();
  }
  settle_egress(number);
}

/// Memory that is not registered any more is found out when its packet is due, which only the engine knows.
void Run::discover_failure(End& end) {
  if (end.qp->state() != QpState::kErr || end.ref.state == QpState::kErr) return;
  const auto& events = end.host->events.all;
  const std::pair access_error{AsyncEvent::kQpAccessError, end.qpn};
  if (end.ref.reply_broken() && std::find(events.begin(), events.end(), access_error) != events.end()) {
    end.ref.fail_reply(wire::NakCode::kRemoteAccess, end.ref.reply_psn());
  } else if (end.ref.source_broken()) {
    end.ref.fail_head(WcStatus::kLocalProtectionError);
  }
}

void Run::settle_end(Connection& connection, std::size_t side) {
  End& end = connection.ends[side];
  end.ref.end_broken_repetitions();
  discover_failure(end);
  require(end.qp->state() == end.ref.state, "the queue pair is in the state that the rules name");

  auto& raised = end.host->events.all;
  for (const AsyncEvent event : end.ref.events) {
    const auto at = std::find(raised.begin(), raised.end(), std::pair{event, end.qpn});
    require(at != raised.end(), "an asynchronous event is raised");
    raised.erase(at);
  }
  end.ref.events.clear();

  if (!connection.failed() || connection.recover_at != kNever || connection.finished()) return;
  const Ps patience = random_.below(2) == 0 ? end.ref.config.timeout * (end.ref.config.retry_cnt + 3) : kMicrosecond;
  connection.recover_at = now_ + patience + random_.below(200) * kMicrosecond;
}

void Run::settle_egress(std::size_t number) {
  const SimHost& host = hosts_[number];
  require(host.events.all.empty(), "no asynchronous event without a cause");
  Ps deadline = kNever;
  for (std::size_t i = 0; i < owner_count_[number]; ++i)
    deadline = std::min(deadline, owners_[number][i].connection->ends[owners_[number][i].side].ref.deadline);
  require(host.engine.next_deadline() == deadline, "the timer fires when the rules say");
  if (host.engine.has_tx()) return;
  std::optional<PathId> settled;
  for (std::size_t i = 0; i < owner_count_[number]; ++i) {
    const PathId path = owners_[number][i].connection->ends[owners_[number][i].side].path;
    if (path != settled && !blocked(number, path)) settle_path(number, path);
    settled = path;
  }
}

bool Run::blocked(std::size_t host, PathId) const noexcept { return blocked_until_[host] != 0; }

/// The engine has nothing to send on a path that is not blocked.
void Run::settle_path(std::size_t number, PathId path) {
  std::uint64_t in_flight = 0;
  std::uint64_t largest = 0;
  const auto each = [&](auto&& look) {
    for (std::size_t i = 0; i < owner_count_[number]; ++i) {
      const End& end = owners_[number][i].connection->ends[owners_[number][i].side];
      if (end.path == path) look(end.ref);
    }
  };
  each([&](const ReferenceQp& ref) {
    in_flight += ref.in_flight;
    largest = std::max<std::uint64_t>(largest, ref.largest_charge());
  });
  const bool path_open = in_flight == 0 || in_flight + largest <= scenario_.path_window;
  each([&](const ReferenceQp& ref) {
    require(ref.owed == ReferenceQp::Owed::kNothing && !ref.replies_pending(), "what is owed to the peer can leave");
    require(!path_open || !ref.ready(), "what may be sent can leave");
  });
}

}  // namespace tensorwire::transport::faults
