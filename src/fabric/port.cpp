#include "fabric/port.hpp"

#include <bit>

namespace tensorwire::fabric {

namespace {

/// A weight of one is worth a full packet a round.
constexpr std::uint32_t kQuantum = 4096 + 128;

std::uint8_t highest(std::uint8_t set) noexcept { return static_cast<std::uint8_t>(std::bit_width(set) - 1); }

}  // namespace

Packet& Port::pop(std::uint8_t priority) noexcept {
  Packet& packet = queues[priority].pop();
  if (queues[priority].empty()) {
    occupied = static_cast<std::uint8_t>(occupied & ~(1U << priority));
    deficit[priority] = 0;
  }
  queue_bytes[priority] -= packet.wire_bytes;
  queued_bytes -= packet.wire_bytes;
  return packet;
}

Packet* Port::next(const SchedulerConfig& scheduler) noexcept {
  if (!pauses.empty()) return &pauses.pop();
  const auto candidates = static_cast<std::uint8_t>(occupied & ~paused);
  if (candidates == 0) return nullptr;
  if (std::has_single_bit(candidates)) return &pop(highest(candidates));
  std::uint8_t strict = 0;
  for (std::uint8_t priority = 0; priority < kPriorities; ++priority)
    if (scheduler.weights[priority] == 0) strict = static_cast<std::uint8_t>(strict | 1U << priority);
  if ((candidates & strict) != 0) return &pop(highest(candidates & strict));
  return &next_by_weight(scheduler, candidates);
}

Packet& Port::next_by_weight(const SchedulerConfig& scheduler, std::uint8_t candidates) noexcept {
  for (;;) {
    if ((candidates >> turn & 1) != 0 && deficit[turn] >= queues[turn].front().wire_bytes) {
      deficit[turn] -= queues[turn].front().wire_bytes;
      return pop(turn);
    }
    turn = (turn + 1) % kPriorities;
    if ((candidates >> turn & 1) != 0) deficit[turn] += kQuantum * scheduler.weights[turn];
  }
}

}  // namespace tensorwire::fabric
