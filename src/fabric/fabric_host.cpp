// What a host does: its NIC pulls packets from the engine when the link is free, gives what arrives to the engine, and
// its software hears of completions and posts work, each after a delay.
#include <algorithm>
#include <array>

#include "fabric/fabric.hpp"
#include "wire/frame.hpp"

namespace tensorwire::fabric {

using namespace transport;

namespace {

PacketKind kind_of(const TxDesc& desc) noexcept {
  if (desc.headers.opcode == wire::Opcode::kCnp) return PacketKind::kCnp;
  return desc.headers.opcode == wire::Opcode::kRcAck ? PacketKind::kControl : PacketKind::kData;
}

}  // namespace

std::vector<PortId> Fabric::path_of(HostId from, const QueuePair& qp) const {
  const AddressVector& av = qp.attributes().av;
  const HostId destination = host_of(av.remote);
  Packet packet;
  packet.source = from;
  packet.destination = destination;
  packet.udp_source_port = av.udp_source_port;
  std::vector<PortId> path{from};
  while (ports_[path.back()].peer != destination && path.size() <= switches_.size()) {
    const SwitchId at = ports_[ports_[path.back()].peer].node;
    const PortId out = route(switches_[at], at, destination, flow_of(packet));
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
    Packet pause = port.pauses.pop(chunks_);
    transmit(id, pause);
    return wake_when_free(id);
  }
  Host& host = *hosts_[port.node];
  if (!host.engine.has_tx()) return;
  const std::size_t count = host.engine.next_tx(now_, 1, {&desc_, 1});
  arm_timer(port.node);
  if (count == 0) return;
  host.last_sender = desc_.src_qpn;
  Packet packet = packet_of(port.node, desc_);
  transmit(id, packet);
  if (host.engine.has_tx()) wake_when_free(id);
}

Packet Fabric::packet_of(HostId host, const TxDesc& desc) {
  Packet packet;
  packet.body = bodies_.take();
  packet.source = host;
  packet.destination = host_of(desc.av->remote);
  packet.udp_source_port = desc.av->udp_source_port;
  packet.wire_bytes =
      static_cast<std::uint16_t>(kFramingBytes + static_cast<std::uint32_t>(wire::header_bytes(desc.headers.opcode)) +
                                 desc.payload_bytes + desc.headers.pad);
  packet.type = kind_of(desc);
  packet.traffic_class = desc.av->traffic_class;
  PacketBody& body = bodies_[packet.body];
  body.headers = desc.headers;
  body.payload_bytes = desc.payload_bytes;
  body.slot_header = nullptr;
  if (wire::traits(desc.headers.opcode).begins() && desc.piece_count != 0 && desc.pieces[0].mr != nullptr) {
    const auto& memory = static_cast<const SparseMemory&>(*desc.pieces[0].mr->ops);
    body.slot_header = memory.header_at(desc.pieces[0].address);
  }
  return packet;
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
  push(EventKind::kHostTimer, id, host.timer_at);
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
  if (host.posts.empty() || host.posts.back().due != post.due) push(EventKind::kPosts, id, post.due);
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

void Fabric::arrive_at_host(HostId id, const Packet& packet) {
  Host& host = *hosts_[id];
  if (host.config.receive_ps_per_byte == 0) return receive(id, packet);
  if (host.waiting_bytes + packet.wire_bytes > host.config.receive_buffer_bytes) {
    ++ports_[id].counters.dropped;
    ++counters_.dropped;
    return forget(packet);
  }
  host.waiting_bytes += packet.wire_bytes;
  host.drained_at = std::max(host.drained_at, now_) + packet.wire_bytes * host.config.receive_ps_per_byte;
  if (host.waiting_bytes > host.config.receive_xoff_bytes && (ports_[id].asks_pause >> packet.priority() & 1) == 0) {
    ask_pause(id, packet.priority());
  }
  events_.push(host.drained_at, EventKind::kDrained, id, packet);
}

void Fabric::drain(HostId id, const Packet& packet) {
  Host& host = *hosts_[id];
  host.waiting_bytes -= packet.wire_bytes;
  Port& port = ports_[id];
  for (std::uint8_t priority = 0; port.asks_pause != 0 && priority < kPriorities; ++priority) {
    const bool asks = (port.asks_pause >> priority & 1) != 0;
    if (asks && host.waiting_bytes <= host.config.receive_xon_bytes) end_pause(id, priority);
  }
  receive(id, packet);
}

void Fabric::receive(HostId id, const Packet& packet) {
  Host& host = *hosts_[id];
  const PacketBody& body = bodies_[packet.body];
  PacketSource source;
  source.address = gid_of(packet.source);
  source.congestion_experienced = (packet.traffic_class & wire::kEcnMask) == wire::kEcnCongestionExperienced;
  const RxVerdict verdict = host.engine.classify(body.headers, body.payload_bytes, source, now_);
  if (verdict.action != RxAction::kDrop) {
    if (verdict.action == RxAction::kPlace) {
      counters_.payload_bytes += body.payload_bytes;
      if (body.slot_header != nullptr) {
        const Piece& piece = verdict.pieces[0];
        (void)piece.mr->ops->store(piece.address, {body.slot_header, collective::kSlotHeaderBytes}, nullptr);
      }
    }
    host.engine.commit(verdict, body.headers, body.payload_bytes, now_);
  }
  forget(packet);
  look_after(id);
}

void Fabric::see_completions(HostId id) {
  Host& host = *hosts_[id];
  const Ps due = now_ + host.config.completion_delay;
  std::array<Completion, 32> batch;
  while (const std::size_t count = host.completions.poll(batch)) {
    for (const Completion& completion : std::span{batch}.first(count)) {
      if (host.seen.empty() || host.seen.back().due != due) push(EventKind::kCompletions, id, due);
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
