#include "softhca/faults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/env.hpp"
#include "base/random.hpp"
#include "wire/frame.hpp"

namespace tensorwire::softhca {
namespace {

/// One stream of random numbers a fault.
enum class Stream : std::uint64_t {
  kDrop = 1,
  kDuplicate,
  kReorder,
  kReorderBy,
  kCorrupt,
  kCorruptBit,
  kMark,
  kDelay,
  kLateDma
};

std::uint64_t draw(std::uint64_t seed, std::uint64_t index, Stream stream) noexcept {
  return mix64(mix64(mix64(seed) + static_cast<std::uint64_t>(stream)) + index);
}

bool strikes(const FaultConfig& config, std::uint64_t index, Stream stream, std::uint32_t per_million) noexcept {
  return per_million != 0 && Random(draw(config.seed, index, stream)).chance(per_million);
}

}  // namespace

FaultVerdict judge(const FaultConfig& config, std::uint64_t index, wire::Opcode opcode) noexcept {
  FaultVerdict verdict;
  if (!config.opcodes.test(static_cast<std::uint8_t>(opcode))) return verdict;
  verdict.drop = strikes(config, index, Stream::kDrop, config.drop);
  verdict.duplicate = strikes(config, index, Stream::kDuplicate, config.duplicate);
  verdict.congestion = strikes(config, index, Stream::kMark, config.congestion);
  verdict.corrupt = strikes(config, index, Stream::kCorrupt, config.corrupt);
  verdict.corrupt_entropy = static_cast<std::uint32_t>(draw(config.seed, index, Stream::kCorruptBit));
  if (strikes(config, index, Stream::kReorder, config.reorder)) {
    verdict.overtaken_by = 1 + Random(draw(config.seed, index, Stream::kReorderBy)).below(kMaxOvertaking);
    verdict.hold = kReorderBound;
  }
  if (strikes(config, index, Stream::kDelay, config.delay)) {  // the longer wait of the two
    verdict.overtaken_by = 0;
    verdict.hold = std::max(verdict.hold, config.delay_time);
  }
  return verdict;
}

Ps late_by(const FaultConfig& config, std::uint64_t index) noexcept {
  const auto bound = static_cast<std::uint64_t>(config.late_dma);
  return static_cast<Ps>(draw(config.seed, index, Stream::kLateDma) % (bound + 1));
}

FaultInjector::FaultInjector(const FaultConfig& config) : config_(config) {
  held_.reserve(kCapacity);
  free_bytes_.reserve(kCapacity);
}

std::unique_ptr<FaultInjector> FaultInjector::from_environment() {
  const auto text = env::get("TENSORWIRE_FAULTS");
  return text ? std::make_unique<FaultInjector>(parse_faults(*text)) : nullptr;
}

void FaultInjector::outgoing(const OutPacket& packet, Ps now, PacketSink& sink) noexcept {
  const auto opcode = static_cast<wire::Opcode>(packet.bytes.front());
  const FaultVerdict verdict = judge(config_, index_++, opcode);
  ++counters_.packets;
  counters_.dropped += verdict.drop;
  counters_.duplicated += !verdict.drop && verdict.duplicate;
  counters_.corrupted += !verdict.drop && verdict.corrupt;
  counters_.marked += !verdict.drop && verdict.congestion;

  if (!verdict.drop) {
    OutPacket changed = packet;
    if (verdict.congestion)
      changed.tos = static_cast<std::uint8_t>((packet.tos & ~wire::kEcnMask) | wire::kEcnCongestionExperienced);
    if (verdict.corrupt) changed.bytes = corrupted(packet.bytes, verdict.corrupt_entropy);
    const bool held = verdict.hold != 0 && hold(changed, verdict, now);
    if (!held) sink.send_packet(changed);
    if (verdict.duplicate) sink.send_packet(changed);
  }
  fire(now, sink);  // this packet may have been the last one that another had to wait for
}

std::span<const std::byte> FaultInjector::corrupted(std::span<const std::byte> bytes, std::uint32_t entropy) noexcept {
  scratch_.assign(bytes.begin(), bytes.end());
  const std::size_t bit = entropy % (scratch_.size() * 8);
  scratch_[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  return scratch_;
}

bool FaultInjector::hold(const OutPacket& packet, const FaultVerdict& verdict, Ps now) noexcept {
  if (held_.size() == kCapacity) {
    ++counters_.not_held;
    return false;
  }
  ++(verdict.overtaken_by != 0 ? counters_.reordered : counters_.delayed);
  Held held;
  if (!free_bytes_.empty()) {
    held.bytes = std::move(free_bytes_.back());
    free_bytes_.pop_back();
  }
  held.bytes.assign(packet.bytes.begin(), packet.bytes.end());
  held.packet = packet;
  held.packet.bytes = held.bytes;
  held.deadline = now + verdict.hold;
  held.after_index = verdict.overtaken_by != 0 ? index_ + verdict.overtaken_by : UINT64_MAX;
  held_.push_back(std::move(held));  // moving a vector keeps its bytes where they are
  return true;
}

Ps FaultInjector::next_deadline() const noexcept {
  Ps first = kNever;
  for (const Held& held : held_) first = std::min(first, held.deadline);
  return first;
}

void FaultInjector::fire(Ps now, PacketSink& sink) noexcept {
  const auto due = [&](const Held& held) { return held.deadline <= now || held.after_index <= index_; };
  for (Held& held : held_) {
    if (!due(held)) continue;
    sink.send_packet(held.packet);
    free_bytes_.push_back(std::move(held.bytes));
    held.packet.bytes = {};
  }
  std::erase_if(held_, due);
}

}  // namespace tensorwire::softhca
