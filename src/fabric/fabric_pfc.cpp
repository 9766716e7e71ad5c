// PFC: pauses that are asked for and obeyed, the watchdog that stops obeying, and deadlocks.
#include <algorithm>
#include <map>

#include "fabric/fabric.hpp"

namespace tensorwire::fabric {

namespace {

constexpr std::uint32_t by_priority(PortId port, std::uint8_t priority) noexcept {
  return port * static_cast<std::uint32_t>(kPriorities) + priority;
}

constexpr std::uint8_t traffic_class_of(std::uint8_t priority) noexcept {
  return static_cast<std::uint8_t>(priority << 5);
}

}  // namespace

void Fabric::send_pause(PortId id, std::uint8_t priority, std::uint16_t quanta) {
  Packet packet;
  packet.type = PacketKind::kPause;
  packet.traffic_class = traffic_class_of(priority);
  packet.quanta_or_port = quanta;
  packet.wire_bytes = kPauseBytes;
  Port& port = ports_[id];
  if (quanta != 0) {
    ++port.counters.pauses_sent;
    ++counters_.pauses_sent;
  }
  port.pauses.push(chunks_, packet);
  wake_when_free(id);
}

void Fabric::on_pause(PortId id, const Packet& packet) {
  Port& port = ports_[id];
  const std::uint8_t priority = packet.priority();
  const Ps length = Ps{packet.quanta_or_port} * kQuantumBytes * port.ps_per_byte;
  port.paused_until[priority] = now_ + length;
  if (length != 0) push(EventKind::kPauseExpiry, by_priority(id, priority), now_ + length);
  set_paused(id, priority, length != 0);
  const WatchdogConfig& watchdog = config_.switches.watchdog;
  // Whoever goes on pausing says so again and again: a good time to look at the clock.
  const bool long_enough = port.is_paused(priority) && now_ - port.paused_since[priority] >= watchdog.detect;
  const bool waits = (port.occupied >> priority & 1) != 0;
  if (watchdog.enabled && !port.of_host && long_enough && waits) give_up_waiting(id, priority);
}

void Fabric::on_pause_expiry(PortId id, std::uint8_t priority) {
  if (ports_[id].paused_until[priority] <= now_) set_paused(id, priority, false);
}

void Fabric::set_paused(PortId id, std::uint8_t priority, bool paused) {
  Port& port = ports_[id];
  if ((port.drops >> priority & 1) != 0) return;  // the watchdog decides
  if (port.is_paused(priority) == paused) return;
  port.paused = static_cast<std::uint8_t>(port.paused ^ 1U << priority);
  if (paused) {
    port.paused_since[priority] = now_;
  } else {
    port.counters.paused_time[priority] += now_ - port.paused_since[priority];
    wake_when_free(id);
  }
  if (port.of_host) hosts_[port.node]->engine.set_path_blocked(priority, paused);
}

void Fabric::ask_pause(PortId id, std::uint8_t priority) {
  Port& port = ports_[id];
  port.asks_pause = static_cast<std::uint8_t>(port.asks_pause | 1U << priority);
  if (!port.of_host) ++switches_[port.node].asking;
  send_pause(id, priority, config_.switches.pause_quanta);
  if ((port.repeats_pause >> priority & 1) != 0) return;
  port.repeats_pause = static_cast<std::uint8_t>(port.repeats_pause | 1U << priority);
  const Ps length = Ps{config_.switches.pause_quanta} * kQuantumBytes * port.ps_per_byte;
  push(EventKind::kPauseRepeat, by_priority(id, priority), now_ + length / 2);
}

void Fabric::end_pause(PortId id, std::uint8_t priority) {
  Port& port = ports_[id];
  port.asks_pause = static_cast<std::uint8_t>(port.asks_pause & ~(1U << priority));
  if (!port.of_host) --switches_[port.node].asking;
  send_pause(id, priority, 0);
}

void Fabric::on_pause_repeat(PortId id, std::uint8_t priority) {
  Port& port = ports_[id];
  if ((port.asks_pause >> priority & 1) == 0) {
    port.repeats_pause = static_cast<std::uint8_t>(port.repeats_pause & ~(1U << priority));
    return;
  }
  send_pause(id, priority, config_.switches.pause_quanta);
  const Ps length = Ps{config_.switches.pause_quanta} * kQuantumBytes * port.ps_per_byte;
  push(EventKind::kPauseRepeat, by_priority(id, priority), now_ + length / 2);
}

// ---- the watchdog

void Fabric::give_up_waiting(PortId id, std::uint8_t priority) {
  Port& port = ports_[id];
  port.drops = static_cast<std::uint8_t>(port.drops | 1U << priority);
  ++counters_.watchdog;
  while ((port.occupied >> priority & 1) != 0) {
    const Packet packet = port.pop(chunks_, priority);
    ++port.counters.watchdog_dropped;
    ++counters_.watchdog_dropped;
    release(switches_[port.node], packet);
    forget(packet);
  }
  push(EventKind::kWatchdog, by_priority(id, priority), now_ + config_.switches.watchdog.restore);
}

/// A pause asks for silence up to paused_until: that long after the last one, and `restore` more.
void Fabric::on_watchdog(PortId id, std::uint8_t priority) {
  Port& port = ports_[id];
  const Ps trusted_at = port.paused_until[priority] + config_.switches.watchdog.restore;
  if (trusted_at > now_) return push(EventKind::kWatchdog, by_priority(id, priority), trusted_at);
  port.drops = static_cast<std::uint8_t>(port.drops & ~(1U << priority));
  set_paused(id, priority, false);
}

// ---- deadlocks

namespace {

bool holds_packets_of(const PacketQueue& queue, const PacketChunks& chunks, std::uint32_t ingress) noexcept {
  bool found = false;
  queue.for_each(chunks, [&](const Packet& packet) { found = found || packet.quanta_or_port == ingress; });
  return found;
}

}  // namespace

std::vector<PortId> Fabric::deadlock() const {
  for (std::uint8_t priority = 0; priority < kPriorities; ++priority) {
    std::map<PortId, std::vector<PortId>> waits_for;
    for (PortId id = 0; id < ports_.size(); ++id)
      if (std::vector<PortId> others = waits_for_at_next(id, priority); !others.empty()) waits_for[id] = others;
    // Who waits only for those that wait for nobody will have its turn.
    const auto hopeful = [&waits_for](const auto& entry) {
      return std::ranges::none_of(entry.second, [&](PortId other) { return waits_for.contains(other); });
    };
    while (std::erase_if(waits_for, hopeful) != 0) {
    }
    if (waits_for.empty()) continue;
    std::vector<PortId> way;
    PortId next = waits_for.begin()->first;
    for (auto seen = way.end();; seen = std::ranges::find(way, next)) {
      if (seen != way.end()) return {seen, way.end()};
      way.push_back(next);
      next = *std::ranges::find_if(waits_for[next], [&](PortId other) { return waits_for.contains(other); });
    }
  }
  return {};
}

/// The paused ports at the other end of a paused port's link at which packets wait that came from it.
std::vector<PortId> Fabric::waits_for_at_next(PortId id, std::uint8_t priority) const {
  std::vector<PortId> others;
  const Port& port = ports_[id];
  if (port.of_host || !port.is_paused(priority) || ports_[port.peer].of_host) return others;
  const Switch& beyond = switches_[ports_[port.peer].node];
  for (PortId out = beyond.first_port; out < beyond.first_port + beyond.ports; ++out) {
    const bool waits = ports_[out].is_paused(priority) &&
                       holds_packets_of(ports_[out].lanes[priority].queue, chunks_, port.peer - beyond.first_port);
    if (waits) others.push_back(out);
  }
  return others;
}

}  // namespace tensorwire::fabric
