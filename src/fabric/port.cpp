#include "fabric/port.hpp"

#include <bit>

namespace tensorwire::fabric {

namespace {

/// A weight of one is worth a full packet a round.
constexpr std::uint32_t kQuantum = 4096 + 128;

std::uint8_t highest(std::uint8_t set) noexcept { return static_cast<std::uint8_t>(std::bit_width(set) - 1); }

std::uint8_t strict_of(const SchedulerConfig& scheduler) noexcept {
  std::uint8_t strict = 0;
  for (std::uint8_t priority = 0; priority < kPriorities; ++priority)
    if (scheduler.weights[priority] == 0) strict = static_cast<std::uint8_t>(strict | 1U << priority);
  return strict;
}

}  // namespace

bool Port::next(PacketChunks& chunks, const SchedulerConfig& scheduler, Packet& packet) {
  if (!pauses.empty()) {
    packet = pauses.pop(chunks);
    return true;
  }
  const auto candidates = static_cast<std::uint8_t>(occupied & ~paused);
  if (candidates == 0) return false;
  if (std::has_single_bit(candidates)) {
    packet = pop(chunks, highest(candidates));
  } else if (const std::uint8_t strict = candidates & strict_of(scheduler); strict != 0) {
    packet = pop(chunks, highest(strict));
  } else {
    packet = next_by_weight(chunks, scheduler, candidates);
  }
  return true;
}

Packet Port::next_by_weight(PacketChunks& chunks, const SchedulerConfig& scheduler, std::uint8_t candidates) {
  for (;;) {
    Lane& lane = lanes[turn];
    if ((candidates >> turn & 1) != 0 && lane.deficit >= lane.queue.front(chunks).wire_bytes) {
      lane.deficit -= lane.queue.front(chunks).wire_bytes;
      return pop(chunks, turn);
    }
    turn = (turn + 1) % kPriorities;
    if ((candidates >> turn & 1) != 0) lanes[turn].deficit += kQuantum * scheduler.weights[turn];
  }
}

}  // namespace tensorwire::fabric
