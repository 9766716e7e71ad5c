// What a switch does with a packet: where it goes, whether there is room, whose turn it is, ECN.
#include "fabric/fabric.hpp"
#include "wire/frame.hpp"

namespace tensorwire::fabric {

/// ECMP: the flow and the switch choose, so that all packets of a flow go one way.
PortId Fabric::route(const Switch& from, SwitchId self, HostId destination, std::uint64_t flow) const noexcept {
  const SwitchId leaf = routes_.leaf_of[destination];
  if (leaf == self) return routes_.port_to[destination];
  const Routes::Choices& choices = routes_.towards(self, leaf);
  if (choices.count == 0) return kNoPort;
  const std::uint64_t hash = mix64(flow ^ from.salt) >> 32;
  return routes_.ports[choices.first + static_cast<std::uint32_t>((hash * choices.count) >> 32)];
}

void Fabric::forward(PortId id, Packet& packet) {
  Port& from = ports_[id];
  const SwitchId self = from.node;
  Switch& at = switches_[self];
  const PortId out = route(at, self, packet.destination, packet.flow);
  if (out == kNoPort) {
    ++counters_.unroutable;
    return packets_.give_back(packet);
  }
  Port& port = ports_[out];
  // Nothing before it: it leaves at once, and no account would notice.
  if (port.busy_until <= now_ && !port.wakes && port.occupied == 0 && !port.is_paused(packet.priority)) {
    return transmit(out, packet);
  }
  if ((port.drops >> packet.priority & 1) != 0) {
    ++port.counters.watchdog_dropped;
    ++counters_.watchdog_dropped;
    return packets_.give_back(packet);
  }
  const auto ingress = static_cast<std::uint16_t>(id - at.first_port);
  if (!at.buffer.take(ingress, packet.priority, packet.wire_bytes)) {
    ++from.counters.dropped;
    ++counters_.dropped;
    return packets_.give_back(packet);
  }
  packet.ingress = ingress;
  if ((from.asks_pause >> packet.priority & 1) == 0 && at.buffer.wants_pause(ingress, packet.priority)) {
    ask_pause(id, packet.priority);
  }
  port.push(packet);
  if (!port.is_paused(packet.priority)) wake_when_free(out);
}

void Fabric::send_from_switch(PortId id) {
  Port& port = ports_[id];
  Packet* const packet = port.next(config_.switches.scheduler);
  if (packet == nullptr) return;
  if (packet->type != PacketKind::kPause) {
    Switch& at = switches_[port.node];
    release(at, *packet);
    mark(at, port, *packet);
  }
  transmit(id, *packet);
  if (port.can_send()) wake_when_free(id);
}

void Fabric::release(Switch& at, const Packet& packet) {
  at.buffer.release(packet.ingress, packet.priority, packet.wire_bytes);
  const PortId ingress = at.first_port + packet.ingress;
  const bool asks = (ports_[ingress].asks_pause >> packet.priority & 1) != 0;
  if (asks && at.buffer.may_resume(packet.ingress, packet.priority)) end_pause(ingress, packet.priority);
}

void Fabric::mark(Switch& at, Port& port, Packet& packet) noexcept {
  const EcnConfig& ecn = config_.switches.ecn;
  const std::uint64_t queue = port.queue_bytes[packet.priority];
  if (!ecn.enabled || queue <= ecn.min_bytes || packet.ecn != wire::kEcnCapable) return;
  if (queue <= ecn.max_bytes) {
    const std::uint64_t part = (queue - ecn.min_bytes) * ecn.max_per_million / (ecn.max_bytes - ecn.min_bytes);
    if (!at.random.chance(static_cast<std::uint32_t>(part))) return;
  }
  packet.ecn = wire::kEcnCongestionExperienced;
  ++port.counters.marked;
  ++counters_.marked;
}

}  // namespace tensorwire::fabric
