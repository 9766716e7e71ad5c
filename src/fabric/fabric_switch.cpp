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
  const SwitchId self = places_[id].node;
  const Switch& at = switches_[self];
  const PortId out = packet.quanta_or_port != kNotRouted ? at.first_port + packet.quanta_or_port
                                                         : route(at, self, packet.destination, flow_of(packet));
  if (out == kNoPort) {
    ++counters_.unroutable;
    return forget(packet);
  }
  // Nothing before it: it leaves at once, and no account would notice.
  const Port& port = ports_[out];
  if (port.busy_until <= now_ && !port.wakes && port.occupied == 0 && !port.is_paused(packet.priority())) {
    return transmit(out, packet);
  }
  enqueue(id, out, packet);
}

void Fabric::enqueue(PortId id, PortId out, Packet& packet) {
  Port& port = ports_[out];
  Switch& at = switches_[port.node];
  const std::uint8_t priority = packet.priority();
  if ((port.drops >> priority & 1) != 0) {
    ++port.counters.watchdog_dropped;
    ++counters_.watchdog_dropped;
    return forget(packet);
  }
  const auto ingress = static_cast<std::uint16_t>(id - at.first_port);
  if (!at.buffer.take(ingress, priority, packet.wire_bytes)) {
    ++ports_[id].counters.dropped;
    ++counters_.dropped;
    return forget(packet);
  }
  packet.quanta_or_port = ingress;
  if (at.buffer.wants_pause(ingress, priority) && (ports_[id].asks_pause >> priority & 1) == 0) {
    ask_pause(id, priority);
  }
  port.push(chunks_, packet);
  if (!port.is_paused(priority)) wake_when_free(out);
}

void Fabric::send_from_switch(PortId id) {
  Port& port = ports_[id];
  Packet packet;
  if (!port.next(chunks_, config_.switches.scheduler, packet)) return;
  if (packet.type != PacketKind::kPause) {
    Switch& at = switches_[places_[id].node];
    release(at, packet);
    mark(at, port, packet);
  }
  transmit(id, packet);
  if (port.can_send()) wake_when_free(id);
}

void Fabric::release(Switch& at, const Packet& packet) {
  const std::uint8_t priority = packet.priority();
  at.buffer.release(packet.quanta_or_port, priority, packet.wire_bytes);
  if (at.asking == 0) return;
  const PortId ingress = at.first_port + packet.quanta_or_port;
  const bool asks = (ports_[ingress].asks_pause >> priority & 1) != 0;
  if (asks && at.buffer.may_resume(packet.quanta_or_port, priority)) end_pause(ingress, priority);
}

void Fabric::mark(Switch& at, Port& port, Packet& packet) noexcept {
  const EcnConfig& ecn = config_.switches.ecn;
  const std::uint64_t queue = port.lanes[packet.priority()].bytes;
  if (!ecn.enabled || queue <= ecn.min_bytes || (packet.traffic_class & wire::kEcnMask) != wire::kEcnCapable) return;
  if (queue <= ecn.max_bytes) {
    const std::uint64_t part = (queue - ecn.min_bytes) * ecn.max_per_million / (ecn.max_bytes - ecn.min_bytes);
    if (!at.random.chance(static_cast<std::uint32_t>(part))) return;
  }
  packet.traffic_class |= wire::kEcnCongestionExperienced;
  ++port.counters.marked;
  ++counters_.marked;
}

}  // namespace tensorwire::fabric
