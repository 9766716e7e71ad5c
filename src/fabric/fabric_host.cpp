// What a host does: its NIC pulls packets from the engine when the link is free, gives what arrives to the engine, and
// its software hears of completions and posts work, each after a delay.
#include <algorithm>
#include <array>

#include "fabric/fabric.hpp"
#include "wire/frame.hpp"

namespace tensorwire::fabric {

using namespace transport;

namespace {

/// What ECMP knows of a packet: the addresses and the UDP source port; the rest of the 5-tuple is the same for all.
std::uint64_t flow_of(HostId source, HostId destination, std::uint16_t udp_source_port) noexcept {
  return mix64(std::uint64_t{source} << 40 ^ std::uint64_t{destination} << 16 ^ udp_source_port);
}

PacketKind kind_of(const TxDesc& desc) noexcept {
  if (desc.headers.opcode == wire::Opcode::kCnp) return PacketKind::kCnp;
  return desc.headers.opcode == wire::Opcode::kRcAck ? PacketKind::kControl : PacketKind::kData;
}

}  // namespace

std::vector<PortId> Fabric::path_of(HostId from, const QueuePair& qp) const {
  const AddressVector& av = qp.attributes().av;
  const HostId destination = host_of(av.remote);
  const std::uint64_t flow = flow_of(from, destination, av.udp_source_port);
  std::vector<PortId> path{from};
  while (ports_[path.back()].peer != destination && path.size() <= switches_.size()) {
    const SwitchId at = ports_[ports_[path.back()].peer].node;
    const PortId out = route(switches_[at], at, destination, flow);
    if (out == kNoPort) return {};
    path.push_back(out);
  }
  return path;
}

// ---- sending

void Fabric::send_from_host(PortId id) {
  Port& port = ports_[id];
  if (port.busy_until > now_) return wake_when_free(id);
  if (!port.pauses.empty()) {
    transmit(id, port.pauses.pop());
    return wake_when_free(id);
  }
  Host& host = *hosts_[port.node];
  if (!host.engine.has_tx()) return;
  const std::size_t count = host.engine.next_tx(now_, 1, {&desc_, 1});
  arm_timer(port.node);
  if (count == 0) return;
  Packet& packet = packets_.take();
  packet.type = kind_of(desc_);
  packet.headers = desc_.headers;
  packet.payload_bytes = desc_.payload_bytes;
  packet.wire_bytes = kFramingBytes + static_cast<std::uint32_t>(wire::header_bytes(desc_.headers.opcode)) +
                      desc_.payload_bytes + desc_.headers.pad;
  packet.source = port.node;
  packet.destination = host_of(desc_.av->remote);
  packet.flow = flow_of(packet.source, packet.destination, desc_.av->udp_source_port);
  packet.priority = priority_of(desc_.av->traffic_class);
  packet.ecn = desc_.av->traffic_class & wire::kEcnMask;
  packet.traffic_class = desc_.av->traffic_class;
  packet.udp_source_port = desc_.av->udp_source_port;
  packet.slot_header = nullptr;
  if (wire::traits(desc_.headers.opcode).begins() && desc_.piece_count != 0 && desc_.pieces[0].mr != nullptr) {
    const auto& memory = static_cast<const SparseMemory&>(*desc_.pieces[0].mr->ops);
    packet.slot_header = memory.header_at(desc_.pieces[0].address);
  }
  transmit(id, packet);
  if (host.engine.has_tx()) wake_when_free(id);
}

void Fabric::look_after(HostId id) {
  Host& host = *hosts_[id];
  if (host.completions.size() != 0) see_completions(id);
  arm_timer(id);
  if (host.engine.has_tx() && !ports_[id].wakes) send_from_host(id);
}

/// Deadlines move, their events do not: one that comes too early does nothing, and this is asked anew.
void Fabric::arm_timer(HostId id) {
  Host& host = *hosts_[id];
  const Ps deadline = host.engine.next_deadline();
  if (deadline >= host.timer_at) return;
  host.timer_at = std::max(deadline, now_);
  push_pooled(EventKind::kHostTimer, id, host.timer_at);
}

void Fabric::on_host_timer(HostId id, Ps time) {
  Host& host = *hosts_[id];
  if (time == host.timer_at) host.timer_at = kNever;
  if (host.engine.next_deadline() <= now_) host.engine.on_timer(now_);
  look_after(id);
}

void Fabric::post(HostId id, QueuePair& qp, const SendWr& wr) {
  Host& host = *hosts_[id];
  host.posting_until = std::max(host.posting_until, now_) + host.config.post_cost;
  Host::Post post{host.posting_until + host.config.post_delay, &qp, wr, {}, static_cast<std::uint8_t>(wr.sges.size())};
  std::copy(wr.sges.begin(), wr.sges.end(), post.sges.begin());
  if (host.posts.empty() || host.posts.back().due != post.due) push_pooled(EventKind::kPosts, id, post.due);
  host.posts.push_back(post);
}

void Fabric::on_posts(HostId id) {
  Host& host = *hosts_[id];
  while (!host.posts.empty() && host.posts.front().due <= now_) {
    Host::Post& post = host.posts.front();
    post.wr.sges = std::span{post.sges}.first(post.sge_count);
    if (post.qp->post_send(post.wr) != 0) ++host.refused_posts;
    host.engine.doorbell(*post.qp, now_);
    host.posts.pop_front();
  }
  look_after(id);
}

// ---- receiving

void Fabric::arrive_at_host(HostId id, Packet& packet) {
  Host& host = *hosts_[id];
  if (host.config.receive_ps_per_byte == 0) return receive(id, packet);
  if (host.waiting_bytes + packet.wire_bytes > host.config.receive_buffer_bytes) {
    ++ports_[id].counters.dropped;
    ++counters_.dropped;
    return packets_.give_back(packet);
  }
  host.waiting_bytes += packet.wire_bytes;
  host.drained_at = std::max(host.drained_at, now_) + packet.wire_bytes * host.config.receive_ps_per_byte;
  if (host.waiting_bytes > host.config.receive_xoff_bytes && (ports_[id].asks_pause >> packet.priority & 1) == 0) {
    ask_pause(id, packet.priority);
  }
  packet.kind = EventKind::kDrained;
  packet.target = id;
  events_.push(packet, host.drained_at);
}

void Fabric::drain(HostId id, Packet& packet) {
  Host& host = *hosts_[id];
  host.waiting_bytes -= packet.wire_bytes;
  Port& port = ports_[id];
  for (std::uint8_t priority = 0; port.asks_pause != 0 && priority < kPriorities; ++priority) {
    const bool asks = (port.asks_pause >> priority & 1) != 0;
    if (asks && host.waiting_bytes <= host.config.receive_xon_bytes) end_pause(id, priority);
  }
  receive(id, packet);
}

void Fabric::receive(HostId id, Packet& packet) {
  Host& host = *hosts_[id];
  PacketSource source;
  source.address = hosts_[packet.source]->gid;
  source.congestion_experienced = packet.ecn == wire::kEcnCongestionExperienced;
  const RxVerdict verdict = host.engine.classify(packet.headers, packet.payload_bytes, source, now_);
  if (verdict.action != RxAction::kDrop) {
    if (verdict.action == RxAction::kPlace) {
      counters_.payload_bytes += packet.payload_bytes;
      if (packet.slot_header != nullptr) {
        const Piece& piece = verdict.pieces[0];
        (void)piece.mr->ops->store(piece.address, {packet.slot_header, collective::kSlotHeaderBytes}, nullptr);
      }
    }
    host.engine.commit(verdict, packet.headers, packet.payload_bytes, now_);
  }
  packets_.give_back(packet);
  look_after(id);
}

void Fabric::see_completions(HostId id) {
  Host& host = *hosts_[id];
  const Ps due = now_ + host.config.completion_delay;
  std::array<Completion, 32> batch;
  while (const std::size_t count = host.completions.poll(batch)) {
    for (const Completion& completion : std::span{batch}.first(count)) {
      if (host.seen.empty() || host.seen.back().due != due) push_pooled(EventKind::kCompletions, id, due);
      host.seen.push_back({due, completion});
    }
  }
}

void Fabric::on_completions(HostId id) {
  Host& host = *hosts_[id];
  while (!host.seen.empty() && host.seen.front().due <= now_) {
    const Completion completion = host.seen.front().completion;
    host.seen.pop_front();
    const QueuePair* const qp = host.engine.find_qp(completion.qp_num);
    auto* const user = qp != nullptr ? static_cast<QpUser*>(qp->init().user) : nullptr;
    if (user != nullptr) user->on_completion(completion, now_);
  }
  look_after(id);
}

}  // namespace tensorwire::fabric
