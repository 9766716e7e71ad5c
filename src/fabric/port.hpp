// One end of a link: what waits to be sent there, the pauses it obeys, and who goes next. A port belongs to a host (its
// queues then hold at most what the NIC has taken from the engine) or to a switch. Owned by the Fabric.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.hpp"
#include "fabric/packet_queue.hpp"

namespace tensorwire::fabric {

class PortCapture;

/// Who goes next among the priorities of a port: those of weight 0 strictly before all others, the highest first; the
/// others share what is left in proportion to their weights (deficit round robin: Shreedhar and Varghese, 1996).
struct SchedulerConfig {
  std::array<std::uint8_t, kPriorities> weights{};
};

struct PortCounters {
  std::uint64_t packets = 0, bytes = 0, data_packets = 0;
  std::uint64_t marked = 0;                   ///< ECN, as packets left this port
  std::uint64_t lost = 0;                     ///< on the link behind it (FCS)
  std::uint64_t dropped = 0;                  ///< on arrival by this port: no room in the switch
  std::uint64_t watchdog_dropped = 0;         ///< what was queued here when the watchdog gave up waiting
  std::uint64_t pauses_sent = 0;              ///< PFC frames with a time, to the other end
  std::array<Ps, kPriorities> paused_time{};  ///< how long it was told to be silent
};

/// Two cache lines are all that a packet needs of a port: the first, and that of its priority's lane.
struct alignas(64) Port {
  // ---- the link
  Ps busy_until = 0;
  Ps delay = 0;
  std::uint32_t ps_per_byte = 80;
  PortId peer = 0;
  bool special = false;  ///< one of: it loses packets, is down, is captured

  // ---- sending
  bool wakes = false;  ///< a kPortFree is pushed
  std::uint8_t occupied = 0;
  std::uint8_t paused = 0;
  std::uint8_t drops = 0;           ///< the watchdog has given up waiting: what is for these priorities is thrown away
  std::uint32_t queued_bytes = 0;   ///< all priorities; a switch has less than 4 GiB
  std::uint32_t longest_queue = 0;  ///< the most that queued_bytes was
  PortCounters counters;            ///< the first three in the first line
  struct alignas(32) Lane {
    PacketQueue queue;
    std::uint32_t bytes = 0;
    std::uint32_t deficit = 0;
  };
  std::array<Lane, kPriorities> lanes;
  PacketQueue pauses;      ///< PFC frames, before everything else
  std::uint32_t node = 0;  ///< host or switch
  bool of_host = false;
  bool down = false;               ///< nothing that is sent here arrives
  std::uint8_t asks_pause = 0;     ///< its switch wants the other end to be silent
  std::uint8_t repeats_pause = 0;  ///< a kPauseRepeat is pushed
  std::uint8_t turn = 0;           ///< weighted priorities: whose turn it is
  std::array<Ps, kPriorities> paused_until{};
  std::array<Ps, kPriorities> paused_since{};
  PortCapture* capture = nullptr;  ///< of what passes, both ways
  std::uint32_t loss_per_million = 0;
  std::uint32_t lose_every = 0;  ///< every so many data packets, exactly; 0: none

  void push(PacketChunks& chunks, const Packet& packet) {
    const std::uint8_t priority = packet.priority();
    lanes[priority].queue.push(chunks, packet);
    lanes[priority].bytes += packet.wire_bytes;
    occupied = static_cast<std::uint8_t>(occupied | 1U << priority);
    queued_bytes += packet.wire_bytes;
    longest_queue = std::max(longest_queue, queued_bytes);
  }
  void tell_special() noexcept { special = down || capture != nullptr || (loss_per_million | lose_every) != 0; }
  /// Takes out the packet whose turn it is; false when there is none, or all are paused.
  [[nodiscard]] bool next(PacketChunks& chunks, const SchedulerConfig& scheduler, Packet& packet);
  /// The first packet of a priority, whether it is paused or not; there must be one.
  Packet pop(PacketChunks& chunks, std::uint8_t priority);
  [[nodiscard]] bool can_send() const noexcept { return (occupied & ~paused) != 0 || !pauses.empty(); }
  [[nodiscard]] bool is_paused(std::uint8_t priority) const noexcept { return (paused >> priority & 1) != 0; }

 private:
  Packet next_by_weight(PacketChunks& chunks, const SchedulerConfig& scheduler, std::uint8_t candidates);
};
// In the header, because every packet that waits passes here.
inline Packet Port::pop(PacketChunks& chunks, std::uint8_t priority) {
  Lane& lane = lanes[priority];
  const Packet packet = lane.queue.pop(chunks);
  if (lane.queue.empty()) {
    occupied = static_cast<std::uint8_t>(occupied & ~(1U << priority));
    lane.deficit = 0;
  }
  lane.bytes -= packet.wire_bytes;
  queued_bytes -= packet.wire_bytes;
  return packet;
}

static_assert(offsetof(Port, counters.marked) == 64);

}  // namespace tensorwire::fabric
