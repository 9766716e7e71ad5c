#include "transport/virtual_loop.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "transport/datagram.hpp"
#include "wire/frame.hpp"

namespace tensorwire::transport {
namespace {

constexpr std::uint64_t kBudgetBytes = 64 * 1024;
/// Ethernet, IPv4, UDP, preamble, FCS and gap around a datagram.
constexpr std::size_t kLinkFramingBytes = 66;

wire::Flow flow(const wire::Gid& source, const wire::Gid& destination, std::uint16_t source_port) noexcept {
  return {source, destination, source_port, wire::kRoceUdpPort};
}

}  // namespace

VirtualLoop::VirtualLoop(const VirtualWire& wire) : wire_(wire), random_(wire.seed) {}

std::size_t VirtualLoop::add_host(Engine& engine, const wire::Gid& address, std::uint32_t mtu) {
  hosts_.push_back({.engine = &engine, .address = address, .mtu = mtu});
  return hosts_.size() - 1;
}

bool VirtualLoop::later(const Packet& a, const Packet& b) noexcept {
  return a.arrival != b.arrival ? a.arrival > b.arrival : a.order > b.order;
}

// Arrivals before timers: a host drains its socket before it believes in a timeout.
VirtualLoop::Next VirtualLoop::next_event() const noexcept {
  Next next;
  const auto consider = [&next](Event event, Ps time, std::size_t host) {
    if (time < next.time) next = {event, time, host};
  };
  if (!in_flight_.empty()) consider(Event::kArrival, in_flight_.front().arrival, in_flight_.front().to);
  for (std::size_t i = 0; i < hosts_.size(); ++i)
    if (!hosts_[i].port.queue.empty()) consider(Event::kPort, std::max(now_, hosts_[i].port.free), i);
  for (std::size_t i = 0; i < hosts_.size(); ++i)
    if (!hosts_[i].paused && hosts_[i].engine->has_tx())
      consider(Event::kTransmit, std::max(now_, hosts_[i].egress_free), i);
  for (std::size_t i = 0; i < hosts_.size(); ++i)
    if (const Ps deadline = hosts_[i].engine->next_deadline(); deadline != kNever)
      consider(Event::kTimer, std::max(now_, deadline), i);
  return next;
}

bool VirtualLoop::step() {
  const Next next = next_event();
  if (next.event == Event::kNone) return false;
  now_ = next.time;
  switch (next.event) {
    case Event::kArrival:
      deliver();
      break;
    case Event::kPort:
      leave_port(hosts_[next.host].port);
      break;
    case Event::kTransmit:
      transmit(hosts_[next.host]);
      break;
    default:
      hosts_[next.host].engine->on_timer(now_);
  }
  return true;
}

void VirtualLoop::run_until(Ps time) {
  while (next_event().time <= time) step();
  now_ = std::max(now_, time);
}

bool VirtualLoop::run_until_idle(Ps limit) {
  for (;;) {
    const Next next = next_event();
    if (next.event == Event::kNone) return true;
    if (next.time > limit) return false;
    step();
  }
}

void VirtualLoop::transmit(Host& host) {
  static constexpr std::size_t kBatch = 32;
  std::array<TxDesc, kBatch> batch;
  const std::size_t count = host.engine->next_tx(now_, kBudgetBytes, batch);
  host.egress_free = std::max(host.egress_free, now_);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t bytes = kLinkFramingBytes + wire::header_bytes(batch[i].headers.opcode) + batch[i].payload_bytes;
    host.egress_free += static_cast<Ps>(bytes) * wire_.ps_per_byte;
    launch(host, batch[i], host.egress_free);
  }
}

void VirtualLoop::launch(Host& host, const TxDesc& desc, Ps departure) {
  Packet packet;
  packet.datagram = take_buffer();
  packet.datagram.resize(datagram_bytes(desc));
  const wire::Flow its_flow = flow(host.address, desc.av->remote, desc.av->udp_source_port);
  if (!serialise(desc, wire::icrc_begin(its_flow, packet.datagram.size(), 0), packet.datagram)) {
    spare_buffers_.push_back(std::move(packet.datagram));
    return host.engine->tx_failed(desc, now_);
  }
  ++counters_.sent;
  const auto to =
      std::find_if(hosts_.begin(), hosts_.end(), [&](const Host& h) { return h.address == desc.av->remote; });
  if (to == hosts_.end() || random_.chance(wire_.lose)) {
    ++counters_.lost;
    spare_buffers_.push_back(std::move(packet.datagram));
    return;
  }
  packet.to = static_cast<std::size_t>(to - hosts_.begin());
  packet.source = host.address;
  packet.source_port = desc.av->udp_source_port;
  packet.traffic_class = desc.av->traffic_class;
  packet.left_port = wire_.port_ps_per_byte == 0;
  packet.arrival = departure + wire_.delay;
  if (random_.chance(wire_.reorder)) {
    ++counters_.reordered;
    packet.arrival += wire_.reorder_delay;
  }
  if (random_.chance(wire_.duplicate)) {
    ++counters_.duplicated;
    Packet copy = packet;
    copy.arrival += wire_.reorder_delay;
    enqueue(std::move(copy));
  }
  if (random_.chance(wire_.corrupt)) {
    ++counters_.corrupted;
    const std::uint32_t at = random_.below(static_cast<std::uint32_t>(packet.datagram.size()));
    packet.datagram[at] ^= std::byte{1} << random_.below(8);
  }
  enqueue(std::move(packet));
}

void VirtualLoop::enqueue(Packet packet) {
  packet.order = order_++;
  in_flight_.push_back(std::move(packet));
  std::push_heap(in_flight_.begin(), in_flight_.end(), later);
}

void VirtualLoop::deliver() {
  std::pop_heap(in_flight_.begin(), in_flight_.end(), later);
  Packet packet = std::move(in_flight_.back());
  in_flight_.pop_back();
  if (!packet.left_port) return enter_port(std::move(packet));
  receive(hosts_[packet.to], packet);
  spare_buffers_.push_back(std::move(packet.datagram));
}

void VirtualLoop::enter_port(Packet packet) {
  Port& port = hosts_[packet.to].port;
  port.bytes += kLinkFramingBytes + packet.datagram.size();
  counters_.longest_queue = std::max(counters_.longest_queue, port.bytes);
  port.queue.push_back(std::move(packet));
}

/// Marks by the queue that a packet leaves behind: marking by the one it met is older news, and makes control unstable.
void VirtualLoop::leave_port(Port& port) {
  Packet packet = std::move(port.queue.front());
  port.queue.pop_front();
  const std::uint64_t bytes = kLinkFramingBytes + packet.datagram.size();
  port.bytes -= bytes;
  const std::uint8_t ecn = packet.traffic_class & wire::kEcnMask;
  if (ecn != 0 && ecn != wire::kEcnCongestionExperienced && marks(port.bytes)) {
    ++counters_.marked;
    packet.traffic_class |= wire::kEcnCongestionExperienced;
  }
  port.free = now_ + static_cast<Ps>(bytes) * wire_.port_ps_per_byte;
  packet.arrival = port.free + wire_.delay;
  packet.left_port = true;
  enqueue(std::move(packet));
}

bool VirtualLoop::marks(std::uint64_t queue_bytes) noexcept {
  if (queue_bytes <= wire_.ecn_min_bytes) return false;
  if (queue_bytes > wire_.ecn_max_bytes) return true;
  const std::uint64_t part = (queue_bytes - wire_.ecn_min_bytes) * wire_.ecn_max_per_million;
  return random_.chance(static_cast<std::uint32_t>(part / (wire_.ecn_max_bytes - wire_.ecn_min_bytes)));
}

void VirtualLoop::receive(Host& host, const Packet& packet) {
  const std::span<const std::byte> all(packet.datagram);
  wire::Parsed parsed;
  if (wire::parse(all, parsed) != wire::ParseStatus::kOk) return;
  const auto bytes = static_cast<std::uint32_t>(parsed.payload_bytes);
  PacketSource source;
  source.address = packet.source;
  source.mtu = host.mtu;
  source.congestion_experienced = (packet.traffic_class & wire::kEcnMask) == wire::kEcnCongestionExperienced;
  source.destination = host.address;
  source.traffic_class = packet.traffic_class;
  const RxVerdict verdict = host.engine->classify(parsed.headers, bytes, source, now_);
  if (verdict.action == RxAction::kDrop) return;

  switch (place(all, parsed, verdict, flow(packet.source, host.address, packet.source_port), 0)) {
    case Arrival::kGood:
      return host.engine->commit(verdict, parsed.headers, bytes, now_);
    case Arrival::kBadIcrc:
      ++counters_.icrc_errors;
      return;
    case Arrival::kMemoryGone:
      return host.engine->reject(verdict, parsed.headers, now_);
  }
}

std::vector<std::byte> VirtualLoop::take_buffer() {
  if (spare_buffers_.empty()) return {};
  std::vector<std::byte> buffer = std::move(spare_buffers_.back());
  spare_buffers_.pop_back();
  return buffer;
}

}  // namespace tensorwire::transport
