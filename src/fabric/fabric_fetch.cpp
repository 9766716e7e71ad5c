// Memory that is fetched before it is needed. With a thousand hosts an event finds nothing of what it reads in the
// cache; but which events come next is known, and what each will read is known, too. Nothing here changes what happens.
#include "fabric/fabric.hpp"

namespace tensorwire::fabric {

namespace {

/// How many events ahead. Memory takes as long as a few of them do.
constexpr std::size_t kFirst = 14;
constexpr std::size_t kSecond = 9;
constexpr std::size_t kThird = 5;
/// Most packets are data of this priority (ConnectionConfig).
constexpr std::uint8_t kUsualPriority = 3;

template <class T>
void fetch_object(const T& object) noexcept {
  const auto* const begin = reinterpret_cast<const std::byte*>(&object);
  for (std::size_t at = 0; at < sizeof(T); at += 64) __builtin_prefetch(begin + at);
}

}  // namespace

void Fabric::fetch_ahead() noexcept {
  if (Event* const event = events_.ahead(kFirst); event != nullptr) fetch(*event);
  if (const Event* const event = events_.ahead(kSecond); event != nullptr) fetch_second(*event);
  if (const Event* const event = events_.ahead(kThird); event != nullptr) fetch_third(*event);
}

void Fabric::fetch(Event& event) const noexcept {
  const std::uint32_t target = event.target();
  switch (event.kind()) {
    case EventKind::kArrival:
      return fetch_arrival(target, event.packet);
    case EventKind::kPortFree:
      __builtin_prefetch(&ports_[target]);
      if (is_host_port(target)) return fetch_host(target);
      __builtin_prefetch(&ports_[target].lanes[kUsualPriority]);
      return;
    case EventKind::kHostTimer:
    case EventKind::kCompletions:
    case EventKind::kPosts:
      return fetch_host(target);
    default:
      return;
  }
}

void Fabric::fetch_arrival(PortId id, Packet& packet) const noexcept {
  if (packet.type == PacketKind::kPause) return;
  if (is_host_port(id)) {
    __builtin_prefetch(&bodies_[packet.body]);
    __builtin_prefetch(&ports_[id]);
    return fetch_host(id);
  }
  const SwitchId self = places_[id].node;
  const Switch& at = switches_[self];
  const PortId out = route(at, self, packet.destination, flow_of(packet));
  if (out == kNoPort) return;
  packet.quanta_or_port = static_cast<std::uint16_t>(out - at.first_port);
  const Port& port = ports_[out];
  __builtin_prefetch(&port);
  __builtin_prefetch(&port.lanes[packet.priority()]);
  at.buffer.fetch(id - at.first_port, packet.priority());
}

void Fabric::fetch_host(HostId id) const noexcept {
  fetch_object(*hosts_[id]);
  engine_memory_[id].fetch_shared();
}

void Fabric::fetch_second(const Event& event) const noexcept {
  const std::uint32_t target = event.target();
  if (event.kind() == EventKind::kPortFree && !is_host_port(target)) {
    ports_[target].lanes[kUsualPriority].queue.fetch(chunks_);
  } else if (const std::uint32_t qpn = queue_pair_of(event); qpn != 0) {
    engine_memory_[target].fetch_place(qpn);
  }
}

void Fabric::fetch_third(const Event& event) const noexcept {
  if (const std::uint32_t qpn = queue_pair_of(event); qpn != 0) engine_memory_[event.target()].fetch(qpn);
}

/// Whose turn it probably is at the host that the event is for; 0: it is for none, or nobody knows.
std::uint32_t Fabric::queue_pair_of(const Event& event) const noexcept {
  const std::uint32_t target = event.target();
  if (event.kind() == EventKind::kArrival)
    return is_host_port(target) && event.packet.body != kNoBody ? bodies_[event.packet.body].headers.dest_qpn : 0;
  if (event.kind() == EventKind::kPortFree || event.kind() == EventKind::kHostTimer)
    return is_host_port(target) ? hosts_[target]->last_sender : 0;
  return 0;
}

}  // namespace tensorwire::fabric
