// What no engine wrote: records of a process that may know every number, damaged ones, and rings whose words are
// nonsense. They come by channels of their own, with the address of the peer or another.
#include <algorithm>
#include <cstring>

#include "ring_run.hpp"
#include "transport/faults/violation.hpp"

namespace tensorwire::softhca::faults {

using transport::faults::require;

Channel& RingRun::hostile_channel(std::size_t victim, const wire::Gid& sender) {
  for (Channel& channel : channels_)
    if (channel.hand && channel.in && channel.to == victim && channel.sender == sender) return channel;
  Channel& made = channels_.emplace_back(victim, victim, sender, false, withdrawals_[victim]);
  made.out.reset();
  made.hand.emplace(*made.memory);
  if (sleepers_[victim].asleep) made.consumer_asks = made.in->ring().prepare_sleep();
  return made;
}

void RingRun::inject(transport::faults::Packet packet, const wire::Headers& headers, std::uint32_t bytes) {
  if (mixed_ && random_.below(2) == 0) return Run::inject(std::move(packet), headers, bytes);
  if (!wire::traits(headers.opcode).payload) bytes = 0;
  Channel& channel = hostile_channel(packet.to, packet.source);
  if (random_.below(8) == 0) garble_words(channel);
  put(channel, packet.label, headers, bytes, bytes > kSlotDataBytes || (bytes != 0 && random_.below(3) == 0));
}

/// Writes a record; one in a few is damaged.
void RingRun::put(Channel& channel, const Label& label, const wire::Headers& headers, std::uint32_t bytes,
                  bool pulled) {
  if (!channel.has_room(1)) return;
  const RingSlot slot = channel.hand->next_slot();
  if (pulled) {
    encode_pulled(nowhere(headers, bytes), slot);
  } else {
    std::ranges::fill(encode_inline(headers, bytes, slot), std::byte{0xee});
  }
  points_.hit(RingPoint::kHostileRecord);
  const bool damaged = random_.below(4) == 0;
  if (damaged) damage(slot);
  std::optional<Record> record = read_record(slot);
  if (damaged && record) points_.hit(RingPoint::kHostileDamaged);
  if (!record) record.emplace().malformed = true;
  record->label = label;
  publish_by_hand(channel, std::move(*record));
}

/// `bytes` bytes of which no process has any.
transport::TxDesc RingRun::nowhere(const wire::Headers& headers, std::uint32_t bytes) {
  transport::TxDesc desc;
  desc.headers = headers;
  desc.payload_bytes = bytes;
  desc.piece_count = static_cast<std::uint8_t>(1 + random_.below(std::min(bytes, transport::kMaxSge)));
  for (std::uint8_t i = 0; i < desc.piece_count; ++i) {
    const std::uint32_t part = i + 1U == desc.piece_count ? bytes : 1;
    const std::uint64_t low = random_.below(1U << 12);
    desc.pieces[i] = {nullptr, random_.below(2) == 0 ? low : ~low, part};
    bytes -= part;
  }
  return desc;
}

void RingRun::publish_by_hand(Channel& channel, Record record) {
  channel.hand->publish();
  ++channel.published;
  channel.records.push_back(std::move(record));
  if (channel.hand->must_wake_consumer() && channel.consumer_asks) {
    channel.consumer_asks = false;
    ring_the_bell(channel.to);
  }
  if (channel.visit_at == kNever) channel.visit_at = now_ + random_.below(2'000) * kNanosecond;
}

void RingRun::damage(RingSlot slot) {
  const auto byte = [&] { return static_cast<std::byte>(random_.next()); };
  switch (random_.below(4)) {
    case 0:
      std::ranges::generate(slot.body, byte);
      return;
    case 1:  // lengths, kind, counts
      slot.body[random_.below(8)] = byte();
      return;
    default:
      for (std::uint32_t n = 1 + random_.below(4); n != 0; --n) slot.body[random_.below(kSlotBodyBytes)] = byte();
  }
}

/// Everything that is not a record. What is not empty is left as it is, so that it is known what is in there.
void RingRun::garble_words(Channel& channel) {
  if (!channel.records.empty()) return;
  points_.hit(RingPoint::kHostileWords);
  RingLayout& layout = channel.memory->layout();
  const auto word = [&] { return static_cast<std::uint32_t>(random_.next()); };
  for (RingLayout::Slot& slot : layout.slots) slot.stamp = random_.next() | 1ULL << 63;
  layout.freed = random_.next();
  layout.answer = word();
  layout.reason = word();
  layout.consumer_sleeping = word() & random_.below(2);
  layout.producer_sleeping = word() | 1U;
  channel.producer_asks = true;
  require(channel.in->ring().empty(), "a stamp of another lap is no record");
}

/// Producers change records that their consumers have begun to pull: they were read once, and that counts.
void RingRun::rewrite_what_is_pulled() {
  for (Channel& channel : channels_) {
    if (channel.done == 0) continue;
    points_.hit(RingPoint::kHostileRewritten);
    RingLayout& layout = channel.memory->layout();
    const std::size_t at = channel.consumed % kRingSlots;
    std::ranges::fill(layout.slots[at].body, static_cast<std::byte>(random_.next()));
    std::ranges::fill(layout.data[at].bytes, static_cast<std::byte>(random_.next()));
  }
}

/// The next request of a peer, right in every number, with bytes that are not there.
void RingRun::forge_nowhere() {
  Connection& connection = connections_[random_.below(static_cast<std::uint32_t>(connections_.size()))];
  const std::size_t side = random_.below(2);
  const transport::faults::End& victim = connection.ends[side];
  const transport::faults::Zone& zone = connection.directions[1 - side].target;
  if (victim.ref.message_base() != 0 || zone.size == 0 || victim.ref.state != transport::QpState::kRts) return;
  wire::Headers headers;
  headers.opcode = random_.below(2) == 0 ? wire::Opcode::kRcSendOnly : wire::Opcode::kRcWriteOnly;
  headers.dest_qpn = victim.qpn;
  headers.psn = (victim.wanted.rq_psn + static_cast<std::uint32_t>(victim.ref.executed)) & wire::kPsnMask;
  headers.va = zone.address;
  headers.rkey = zone.key;
  headers.dma_length = 1 + random_.below(static_cast<std::uint32_t>(std::min<std::uint64_t>(zone.size, 5'000)));
  transport::faults::Packet packet = connection.blank(1 - side, transport::faults::Truth::kForged);
  put(hostile_channel(packet.to, packet.source), packet.label, headers, headers.dma_length, true);
}

}  // namespace tensorwire::softhca::faults
