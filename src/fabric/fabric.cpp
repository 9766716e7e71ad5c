// The fabric: set-up, events and links.
#include "fabric/fabric.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "fabric/port_capture.hpp"

namespace tensorwire::fabric {

namespace {

/// A packet makes a host read some 3 KiB; a core has a megabyte near.
constexpr std::uint32_t kManyHosts = 256;
constexpr std::size_t kLookAhead = 16;

void check_buffer(const BufferConfig& buffer) {
  if (buffer.bytes >= SharedBuffer::kMostBytes)
    throw Error{"build the fabric", "a switch has a buffer of 4 GiB or more", "Take a smaller buffer"};
}

}  // namespace

Fabric::Fabric(const Topology& topology, const FabricConfig& config)
    : topology_(topology),
      config_(config),
      down_(topology.links.size()),
      routes_(find_routes(topology)),
      events_(topology.hosts >= kManyHosts ? kLookAhead : 1),
      random_(config.seed),
      fetches_(topology.hosts >= kManyHosts) {
  ports_.resize(routes_.peer_of.size());
  places_.resize(ports_.size());
  check_buffer(config.switches.buffer);
  for (PortId port = 0; port < ports_.size(); ++port) {
    Port& p = ports_[port];
    const LinkConfig& link = topology.links[routes_.link_of[port]].config;
    p.of_host = port < topology.hosts;
    p.node = port;  // of a switch's port: below
    p.peer = routes_.peer_of[port];
    p.ps_per_byte = static_cast<std::uint32_t>(link.ps_per_byte);
    p.delay = link.delay;
    p.loss_per_million = link.loss_per_million;
    p.lose_every = link.lose_every;
  }
  for (SwitchId at = 0; at < topology.switches.size(); ++at) {
    const PortId first = routes_.first_port[at];
    const std::uint32_t count = routes_.first_port[at + 1] - first;
    if (SharedBuffer::pool_bytes(config.switches.buffer, count) == 0) {
      throw Error{"build the fabric",
                  fmt::format("the reserves and headroom of the {} ports of {} are larger than its buffer", count,
                              topology.switches[at]),
                  "Take a larger buffer or less headroom"};
    }
    for (PortId port = first; port < first + count; ++port) ports_[port].node = at;
    const std::uint64_t salt = random_.next();
    switches_.push_back({first, count, salt, 0, SharedBuffer{config.switches.buffer, count}, Random{random_.next()}});
  }
  for (PortId port = 0; port < ports_.size(); ++port) {
    places_[port].node = ports_[port].node;
    tell_special(port);
  }
  engine_memory_.resize(topology.hosts);
  for (HostId host = 0; host < topology.hosts; ++host) {
    transport::EngineConfig engine = config.engine;
    engine.seed = random_.next();
    hosts_.push_back(std::make_unique<Host>(host, config.hosts, engine));
  }
}

Fabric::~Fabric() = default;

Fabric::Pair Fabric::connect(HostId a, HostId b, const ConnectionConfig& config, QpUser* user_a, QpUser* user_b) {
  Host& host_a = *hosts_[a];
  Host& host_b = *hosts_[b];
  const Pair pair{&host_a.create_qp(config, user_a), &host_b.create_qp(config, user_b)};
  host_a.connect(*pair.a, config, host_b.gid, pair.b->qpn(), random_.next());
  host_b.connect(*pair.b, config, host_a.gid, pair.a->qpn(), random_.next());
  engine_memory_[a].learn(*pair.a, host_a.key);
  engine_memory_[b].learn(*pair.b, host_b.key);
  return pair;
}

// ---- events

void Fabric::call_at(Ps time, Actor& actor) {
  const std::uint32_t number = actors_.take();
  actors_[number] = &actor;
  push(EventKind::kActor, number, time);
}

bool Fabric::run(Ps limit) {
  stopped_ = false;
  while (!stopped_) {
    const Event* const next = events_.pop(limit);
    if (next == nullptr) {
      const bool more = !events_.empty();
      if (more) now_ = std::max(now_, limit);
      return more;
    }
    Event event = *next;
    if (fetches_) fetch_ahead();
    now_ = event.time;
    handle(event);
  }
  return false;
}

void Fabric::handle(Event& event) {
  const std::uint32_t target = event.target();
  switch (event.kind()) {
    case EventKind::kArrival:
      return on_arrival(target, event.packet);
    case EventKind::kPortFree:
      return on_port_free(target);
    case EventKind::kDrained:
      return drain(target, event.packet);
    case EventKind::kPauseExpiry:
      return on_pause_expiry(target / kPriorities, target % kPriorities);
    case EventKind::kPauseRepeat:
      return on_pause_repeat(target / kPriorities, target % kPriorities);
    case EventKind::kWatchdog:
      return on_watchdog(target / kPriorities, target % kPriorities);
    case EventKind::kHostTimer:
      return on_host_timer(target, event.time);
    case EventKind::kCompletions:
      return on_completions(target);
    case EventKind::kPosts:
      return on_posts(target);
    case EventKind::kActor: {
      Actor* const actor = actors_[target];
      actors_.give_back(target);
      return actor->act(now_);
    }
  }
}

// ---- links

bool Fabric::loses(Port& port, const Packet& packet) noexcept {
  if (port.down) return true;
  if (port.loss_per_million != 0 && random_.chance(port.loss_per_million)) return true;
  return port.lose_every != 0 && packet.type == PacketKind::kData && port.counters.data_packets % port.lose_every == 0;
}

void Fabric::forget(const Packet& packet) {
  if (packet.body != kNoBody) bodies_.give_back(packet.body);
}

void Fabric::transmit(PortId id, Packet& packet) {
  Port& port = ports_[id];
  port.busy_until = now_ + Ps{packet.wire_bytes} * port.ps_per_byte;
  ++port.counters.packets;
  port.counters.bytes += packet.wire_bytes;
  ++counters_.packet_hops;
  if (packet.type == PacketKind::kData) {
    ++port.counters.data_packets;
    ++counters_.data_packet_hops;
  }
  if (port.special && port.capture != nullptr) port.capture->record(packet, bodies_, port.busy_until);
  if (port.special && loses(port, packet)) {
    ++port.counters.lost;
    ++counters_.lost;
    return forget(packet);
  }
  if (packet.type != PacketKind::kPause) packet.quanta_or_port = kNotRouted;
  events_.push(port.busy_until + port.delay, EventKind::kArrival, port.peer, packet);
}

void Fabric::wake_when_free(PortId id) {
  Port& port = ports_[id];
  if (port.wakes) return;
  port.wakes = true;
  push(EventKind::kPortFree, id, std::max(port.busy_until, now_));
}

void Fabric::on_port_free(PortId id) {
  ports_[id].wakes = false;
  if (is_host_port(id)) {
    send_from_host(id);
  } else {
    send_from_switch(id);
  }
}

void Fabric::set_link(std::uint32_t link, bool up) {
  down_[link] = !up;
  for (PortId id = 0; id < ports_.size(); ++id) {
    if (routes_.link_of[id] != link) continue;
    Port& port = ports_[id];
    port.down = !up;
    tell_special(id);
    // Nobody is there to be silent for.
    for (std::uint8_t priority = 0; !up && priority < kPriorities; ++priority) {
      port.paused_until[priority] = now_;
      set_paused(id, priority, false);
    }
  }
}

void Fabric::reroute() {
  find_ways_around(topology_, down_, routes_);
  // Ways that were chosen early are not ways any more.
  for (std::size_t n = 0; Event* const event = events_.ahead(n); ++n) {
    if (event->kind() == EventKind::kArrival && event->packet.type != PacketKind::kPause)
      event->packet.quanta_or_port = kNotRouted;
  }
}

void Fabric::capture(PortId id, PortCapture& capture) {
  ports_[id].capture = &capture;
  tell_special(id);
}

void Fabric::tell_special(PortId id) noexcept {
  ports_[id].tell_special();
  places_[id].special = ports_[id].special;
}

void Fabric::on_arrival(PortId id, Packet& packet) {
  if (places_[id].special) {
    Port& port = ports_[id];
    if (port.capture != nullptr) port.capture->record(packet, bodies_, now_);
    if (port.down) {
      ++ports_[port.peer].counters.lost;
      ++counters_.lost;
      return forget(packet);
    }
  }
  if (packet.type == PacketKind::kPause) return on_pause(id, packet);
  if (is_host_port(id)) return arrive_at_host(id, packet);
  forward(id, packet);
}

// ---- questions

std::string Fabric::name_of(PortId port) const {
  if (ports_[port].of_host) return fmt::format("host {}", port);
  const SwitchId at = ports_[port].node;
  return fmt::format("{} port {}", topology_.switches[at], port - switches_[at].first_port);
}

PortId Fabric::port_named(const std::string& name) const {
  for (PortId port = 0; port < ports_.size(); ++port)
    if (name_of(port) == name) return port;
  const PortId first = switches_.front().first_port;
  throw Error{"find port \"" + name + "\"", "the fabric has none of that name",
              fmt::format("Allowed: \"{}\" to \"{}\", \"{}\" to \"{}\"", name_of(0), name_of(first - 1), name_of(first),
                          name_of(static_cast<PortId>(ports_.size() - 1)))};
}

Ps Fabric::paused_time(PortId id, std::uint8_t priority) const noexcept {
  const Port& port = ports_[id];
  const Ps before = port.counters.paused_time[priority];
  return port.is_paused(priority) ? before + now_ - port.paused_since[priority] : before;
}

std::uint64_t Fabric::hash() const noexcept {
  std::uint64_t hash = mix64(static_cast<std::uint64_t>(now_));
  const auto add = [&hash](std::uint64_t value) { hash = mix64(hash ^ value) + 0x9e3779b97f4a7c15ULL; };
  for (PortId id = 0; id < ports_.size(); ++id) {
    const PortCounters& counters = ports_[id].counters;
    for (const std::uint64_t value :
         {counters.packets, counters.bytes, counters.marked, counters.lost, counters.dropped, counters.pauses_sent,
          std::uint64_t{ports_[id].longest_queue}, counters.watchdog_dropped})
      add(value);
    add(static_cast<std::uint64_t>(ports_[id].busy_until));
    for (std::uint8_t priority = 0; priority < kPriorities; ++priority)
      add(static_cast<std::uint64_t>(paused_time(id, priority)));
  }
  for (const auto& host : hosts_) {
    const transport::EngineCounters& counters = host->engine.counters();
    for (const std::uint64_t value : {counters.tx_packets, counters.rx_packets, counters.retransmitted_packets,
                                      counters.np_cnp_sent, counters.rp_cnp_handled})
      add(value);
  }
  return hash;
}

}  // namespace tensorwire::fabric
