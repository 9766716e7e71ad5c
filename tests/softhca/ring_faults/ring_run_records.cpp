// A seed's records: out of an engine, through the ring, into an engine; and what is checked on the way.
#include <algorithm>

#include "ring_run.hpp"
#include "transport/faults/violation.hpp"

namespace tensorwire::softhca::faults {

using namespace transport;
using transport::faults::End;
using transport::faults::Point;
using transport::faults::ReferenceQp;
using transport::faults::require;
using transport::faults::Truth;
using transport::faults::UnreliableEnd;

// ---- egress

void RingRun::launch(std::size_t host, std::span<const TxDesc> descs, std::span<Leaving> leaving) {
  Channel* const channel = channel_of(host, descs.front().path);
  if (channel == nullptr) return Run::launch(host, descs, leaving);
  if (const auto [connection, side] = owner(host, descs.front().src_qpn);
      connection != nullptr && paced(*connection->ends[side].qp))
    points_.hit(RingPoint::kPacedWhole);
  if (mixed_) points_.hit(RingPoint::kMixed);
  // One by one when a source may be gone, so that it is seen which one was.
  const std::size_t step = hosts_[host].memory.failing_loads != 0 ? 1 : descs.size();
  for (std::size_t i = 0; i < descs.size(); i += step) send(*channel, descs.subspan(i, step), leaving.subspan(i, step));
  if (!channel->blocked) {
    const bool room = channel->out->has_room(reserve_);
    require(channel->lied || room == (!channel->out->alive() || channel->has_room(reserve_)),
            "who looks for room sees what was given back");
    if (!room) block(*channel);
  }
  settle(host);
}

Record RingRun::record_of(const TxDesc& desc, const Label& label) const {
  Record record;
  record.label = label;
  record.headers = desc.headers;
  record.bytes = desc.payload_bytes;
  const std::span pieces = std::span(desc.pieces).first(desc.piece_count);
  if (!desc.inline_pieces && !wire::traits(desc.headers.opcode).response && desc.payload_bytes > inline_bytes_) {
    for (const Piece& piece : pieces) record.pieces.push_back({piece.address, piece.length});
    return record;
  }
  for (const Piece& piece : pieces) {
    const auto* const at = reinterpret_cast<const std::byte*>(piece.address);
    record.payload.insert(record.payload.end(), at, at + piece.length);
  }
  return record;
}

void RingRun::send(Channel& channel, std::span<const TxDesc> descs, std::span<Leaving> leaving) {
  SimHost& host = hosts_[channel.from];
  LocalLinkCounters& counters = counters_[channel.from];
  const LocalLinkCounters before = counters;
  const std::uint32_t loads = host.memory.failing_loads;
  const bool alive = channel.out->alive();
  require(!alive || channel.lied || channel.has_room(static_cast<std::uint32_t>(descs.size())),
          "what is sent on a path that is not blocked finds room");
  std::vector<Record> records;
  for (std::size_t i = 0; i < descs.size(); ++i) records.push_back(record_of(descs[i], leaving[i].packet.label));

  channel.out->send(host.engine, descs, inline_bytes_, now_, counters);

  const std::uint64_t made = counters.tx_records - before.tx_records;
  const std::uint64_t lost = counters.tx_lost - before.tx_lost;
  if (host.memory.failing_loads != loads) {
    require(made == 0 && lost == 0, "what could not be read was not sent");
    written(channel, before.wakeups);
    return lose_source(channel.from, descs.front());
  }
  require(made + lost == descs.size() && (lost == 0 || !alive || channel.lied),
          "what is sent on a live channel is sent");
  if (lost != 0) points_.hit(RingPoint::kVanished);
  channel.published += made;
  if (made != 0 && channel.in) {
    for (Record& record : records) {
      points_.hit(record.pulled() ? (channel.same_process ? RingPoint::kPulledInProcess : RingPoint::kPulled)
                                  : RingPoint::kInline);
      channel.records.push_back(std::move(record));
    }
  }
  if ((channel.published - made) / kRingSlots != channel.published / kRingSlots) points_.hit(RingPoint::kLap);
  if (channel.in && !channel.has_room(1)) points_.hit(RingPoint::kFull);
  written(channel, before.wakeups);
}

/// Who sleeps is woken for a record, once. (A call that wrote none may ring, too.)
void RingRun::written(Channel& channel, std::uint64_t wakeups_before) {
  if (!channel.in) return;
  const bool rings = counters_[channel.from].wakeups != wakeups_before;
  require(rings || !channel.consumer_asks || channel.records.empty(), "who sleeps is woken for a record");
  require(!rings || channel.consumer_asks, "nobody is woken who does not sleep");
  require(Channel::rang(channel.in->fds().wake_consumer) == rings, "the bell that rings is the consumer's");
  if (rings) {
    points_.hit(RingPoint::kConsumerWoken);
    channel.consumer_asks = false;
    ring_the_bell(channel.to);
  }
  if (channel.visit_at == kNever && !channel.records.empty())
    channel.visit_at = now_ + random_.below(2'000) * kNanosecond;
}

// ---- ingress

void RingRun::visit(Channel& channel) {
  channel.visit_at = kNever;
  if (channel.records.empty()) require(receive(channel, 1) == 0, "nothing is taken from an empty ring");
  for (std::uint32_t n = 1 + random_.below(4); n != 0 && channel.in && !channel.records.empty(); --n) take(channel);
  if (!channel.in) return;
  if (!channel.records.empty()) {
    channel.visit_at = now_ + random_.below(2'000) * kNanosecond;
  } else if (random_.below(3) == 0) {
    fall_asleep(channel.to);
  }
}

void RingRun::take(Channel& channel) {
  Record& record = channel.records.front();
  require(!channel.in->ring().empty(), "a record that was written is seen");
  for (Channel& other : channels_)
    if (&other != &channel && other.to == channel.to && other.done != 0) other.interleaved = true;
  if (record.malformed) return take_malformed(channel);
  if (UnreliableEnd* end = unreliable_end(channel.to, record.headers.dest_qpn))
    return take_unreliable(channel, record, *end);

  const auto [connection, side] = owner(channel.to, record.headers.dest_qpn);
  Judgement judgement;
  judgement.drop = DropReason::kUnknownQp;
  if (connection != nullptr) {
    judgement = connection->ends[side].ref.judge(record.headers, record.bytes, channel.origin());
    // A record that names bytes which are not there ends its queue pair, as one of the peer would, and deceives nobody
    // but with what a response acknowledges by the way.
    const bool deceives = would_deceive(record.label, record.headers, judgement, *connection, side);
    const bool fails = record.pulled() && judgement.action == RxAction::kPlace && record.nowhere() &&
                       (judgement.plan != RxPlan::kResponse || !lies(record.headers, judgement, *connection, side));
    if (deceives && !fails) {
      channel.in->ring().pop();  // not for the engine
      ++channel.consumed;
      return popped(channel);
    }
    if (record.label.truth == Truth::kGenuine && record.label.life != connection->ends[1 - side].life)
      points_.hit(RingPoint::kOldLife);
  }
  trace_.arrived(now_, channel.to, record.headers, record.bytes, judgement, record.label.truth);
  if (channel.done != 0 && judgement.action != RxAction::kPlace) {
    points_.hit(RingPoint::kOvertaken);
    if (judgement.point == Point::kAccessKey && connection->ends[side].window.has(record.headers.rkey))
      points_.hit(RingPoint::kWindowOvertaken);
  }
  if (record.label.truth == Truth::kGenuine && record.headers.opcode == wire::Opcode::kCnp)
    points_.hit(RingPoint::kNotified);
  take_record(channel, record, judgement, connection, side);
}

void RingRun::take_malformed(Channel& channel) {
  const std::uint64_t malformed = counters_[channel.to].malformed;
  receive(channel, 1);
  require(counters_[channel.to].malformed == malformed + 1 && channel.in->finished(),
          "a record that is none ends its channel");
  points_.hit(RingPoint::kHostileMalformed);
  settle(channel.to);
  abandon(channel);
}

/// No message of an unreliable connection comes this way, whoever says so; a CNP does.
void RingRun::take_unreliable(Channel& channel, Record& record, UnreliableEnd& end) {
  const Judgement judgement = end.ref.judge(record.headers, record.bytes, channel.origin());
  trace_.arrived(now_, channel.to, record.headers, record.bytes, judgement, record.label.truth);
  points_.hit(RingPoint::kHostileUnreliable);
  if (judgement.action == RxAction::kDrop) return take_record(channel, record, judgement, nullptr, 0);
  const EngineCounters before = end.host->engine.counters();
  require(receive(channel, 1) == 1, "a record is taken");
  expect_congestion(channel.origin(), record.headers, before, *end.host, end.ref.congestion);
  end.ref.commit(judgement, record.headers, record.bytes);
  settle(channel.to);
  popped(channel);
}

void RingRun::take_record(Channel& channel, Record& record, const Judgement& judgement, Connection* connection,
                          std::size_t side) {
  SimHost& host = hosts_[channel.to];
  if (judgement.action == RxAction::kDrop) {
    const std::uint64_t dropped = host.engine.counters().rx_dropped;
    require(receive(channel, 1) == 1, "a record is taken");
    require(host.engine.counters().rx_dropped == dropped + 1, "a record is dropped by the rules");
    settle(channel.to);
    return popped(channel);
  }
  if (judgement.action == RxAction::kPlace) {
    if (record.pulled()) return place_pulled(channel, record, judgement, *connection, side);
    return place_inline(channel, record, judgement, *connection, side);
  }
  const Before before = expect_commit(record.label, record.headers, record.bytes, judgement, *connection, side);
  require(receive(channel, 1) == 1, "a record is taken");
  committed(record.label, record.headers, record.bytes, channel.origin(), judgement, before, connection->ends[side]);
  popped(channel);
}

void RingRun::place_inline(Channel& channel, const Record& record, const Judgement& judgement, Connection& connection,
                           std::size_t side) {
  SimHost& host = hosts_[channel.to];
  End& end = connection.ends[side];
  if (host.memory.failing_stores != 0) {
    receive(channel, 1);
    trace_.note(now_, channel.to, "target memory gone");
    end.ref.reject(judgement, record.headers, now_);
    settle(channel.to);
    return popped(channel);
  }
  const Before before = expect_commit(record.label, record.headers, record.bytes, judgement, connection, side);
  host.arena.expect(judgement.address, record.payload);
  const std::uint64_t placed = counters_[channel.to].rx_inline_bytes;
  receive(channel, 1);
  require(counters_[channel.to].rx_inline_bytes == placed + record.bytes, "inline bytes are counted");
  require(host.arena.intact(judgement.address, record.bytes), "only the record's bytes are written");
  committed(record.label, record.headers, record.bytes, channel.origin(), judgement, before, end);
  popped(channel);
}

/// The consumer has dropped the channel; the producer will see it.
void RingRun::abandon(Channel& channel) {
  channel.in.reset();
  channel.in_dies_at = channel.visit_at = kNever;
  channel.consumer_asks = false;
  channel.records.clear();
  channel.done = 0;
  if (channel.out) channel.out_dies_at = std::min(channel.out_dies_at, now_ + random_.below(200) * kMicrosecond);
}

/// The real thing, for one record at most; and who waits for room is woken when there is some.
std::size_t RingRun::receive(Channel& channel, std::uint64_t pull_bytes) {
  LocalLinkCounters& counters = counters_[channel.to];
  const std::uint64_t before = counters.wakeups;
  const std::size_t taken =
      channel.in->receive(hosts_[channel.to].engine, now_, counters, {.records = 1, .pull_bytes = pull_bytes});
  channel.consumed += taken;
  const bool must_ring = channel.producer_asks && channel.consumed != channel.given_back;
  require((counters.wakeups != before) == must_ring, "who waits for room is woken, and nobody else is");
  require(Channel::rang(channel.in->fds().wake_producer) == must_ring, "the bell that rings is the producer's");
  channel.given_back = channel.consumed;
  if (must_ring) {
    channel.producer_asks = false;
    if (channel.out) {
      points_.hit(RingPoint::kProducerWoken);
      ring_the_bell(channel.from);
    }
  }
  if (channel.blocked && channel.look_at == kNever) channel.look_at = now_ + random_.below(2'000) * kNanosecond;
  return taken;
}

void RingRun::popped(Channel& channel) {
  channel.records.pop_front();
  channel.done = 0;
  channel.interleaved = false;
  if (!channel.hung_up || !channel.records.empty()) return;
  require(channel.in->finished(), "a channel without a peer and without records is finished");
  abandon(channel);
}

}  // namespace tensorwire::softhca::faults
