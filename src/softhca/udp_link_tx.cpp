#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "softhca/devices.hpp"
#include "softhca/gpu/staged_memory.hpp"
#include "softhca/socket_address.hpp"
#include "softhca/udp_link.hpp"
#include "transport/datagram.hpp"
#include "transport/queue_pair.hpp"
#include "wire/frame.hpp"
#include "wire/headers.hpp"

namespace tensorwire::softhca {

namespace {

/// A full socket empties at the pace of a network card; nothing tells us when, so it is tried again after this.
constexpr Ps kRetryInterval = 50 * kMicrosecond;

constexpr std::size_t kControlBytes = CMSG_SPACE(sizeof(int)) * 2 + CMSG_SPACE(sizeof(std::uint16_t));

/// A hop limit of 0 would let no packet leave the host.
constexpr std::uint8_t usual_if_zero(std::uint8_t hop_limit) noexcept { return hop_limit == 0 ? 64 : hop_limit; }

template <typename T>
cmsghdr* put_control(msghdr& message, cmsghdr* at, int level, int type, T value) noexcept {
  at->cmsg_level = level;  // NOLINT(clang-analyzer-core.NullDereference): kControlBytes has room for every one
  at->cmsg_type = type;
  at->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(at), &value, sizeof value);
  return CMSG_NXTHDR(&message, at);
}

}  // namespace

void UdpLink::transmit(std::span<const transport::TxDesc> descs, Ps now) noexcept {
  if (staged_ == nullptr || late_dma_) return build_and_send(descs, now);  // late sources are read when they leave
  staged_->fetch(descs);
  build_and_send(descs, now);
  staged_->fetched();
}

void UdpLink::build_and_send(std::span<const transport::TxDesc> descs, Ps now) noexcept {
  if (faults_) {
    if (late_dma_) {
      late_dma_->take(descs, now);
      send_late(now, now);
    } else {
      for (const transport::TxDesc& desc : descs) send_singly(desc, now);
    }
    return;
  }
  if (can_send()) {
    arena_used_ = 0;
    batch_count_ = unsent_ = 0;
  }
  for (const transport::TxDesc& desc : descs) append(desc);
  if (batch_count_ > 0) batches_[batch_count_ - 1].closed = true;
  send_pending();
  if (!can_send()) retry_at_ = now + kRetryInterval;
}

/// Adds one packet to the open batch, or sends that one and opens the next.
void UdpLink::append(const transport::TxDesc& desc) noexcept {
  const std::size_t length = transport::datagram_bytes(desc);
  const Route route{.source = desc.av->local,
                    .destination = desc.av->remote,
                    .source_port = desc.av->udp_source_port,
                    .tos = desc.av->traffic_class,
                    .ttl = desc.av->hop_limit,
                    .flow_label = desc.av->flow_label};
  Batch* open = batch_count_ > unsent_ ? &batches_[batch_count_ - 1] : nullptr;
  const bool joins = open != nullptr && !open->closed && open->route == route && open->segments < max_segments_ &&
                     length <= open->segment_bytes && open->bytes + length <= kMaxDatagramBytes;
  if (!joins) {
    if (open != nullptr) open->closed = true;
    send_pending();
    if (can_send()) {
      arena_used_ = 0;
      batch_count_ = unsent_ = 0;
    }
    open = &batches_[batch_count_++];
    *open = Batch{.route = route, .source_qpn = desc.src_qpn, .offset = arena_used_, .segment_bytes = length};
  }
  const wire::Flow flow{route.source, route.destination, route.source_port, wire::kRoceUdpPort};
  const std::size_t built = build(desc, flow, open->segments, std::span{arena_}.subspan(arena_used_, length));
  if (built == 0) {  // its memory is gone; the transport has been told
    if (open->segments == 0) --batch_count_;
    return;
  }
  arena_used_ += built;
  open->bytes += built;
  ++open->segments;
  open->closed = built < open->segment_bytes;
}

std::size_t UdpLink::build(const transport::TxDesc& desc, const wire::Flow& flow, std::uint16_t ip_id,
                           std::span<std::byte> out) noexcept {
  if (transport::serialise(desc, icrc_of_sent_.begin(flow, out.size(), ip_id), out)) return out.size();
  host_.engine().tx_failed(desc, monotonic_now());
  return 0;
}

/// Sends the closed batches in order, as far as the socket takes them.
void UdpLink::send_pending() noexcept {
  while (unsent_ < batch_count_ && batches_[unsent_].closed && send_batch(batches_[unsent_])) ++unsent_;
}

bool UdpLink::send_batch(const Batch& batch) noexcept {
  return send_bytes(batch.route, batch.source_qpn, std::span{arena_}.subspan(batch.offset, batch.bytes),
                    batch.segment_bytes);
}

void UdpLink::flush(Ps now) noexcept {
  if (late_dma_) send_late(now, now);
  send_pending();
  retry_at_ = unsent_ == batch_count_ ? kNever : now + kRetryInterval;
}

bool UdpLink::send_bytes(const Route& route, std::uint32_t source_qpn, std::span<const std::byte> bytes,
                         std::size_t segment_bytes) noexcept {
  const SendSocket* const socket = send_socket(route.source, route.source_port);
  if (socket == nullptr) {
    ++counters_.tx_errors;
    return true;
  }
  const bool labelled = flow_labels_ && route.flow_label != 0 && !route.destination.is_ipv4();
  Route taken = route;
  taken.flow_label = labelled ? route.flow_label : 0;
  int error = put(*socket, taken, bytes, segment_bytes);
  if (error == EINVAL && labelled) {
    taken.flow_label = 0;
    error = put(*socket, taken, bytes, segment_bytes);
    if (error == 0) stop_flow_labels(route);
  }
  if (error == EAGAIN || error == ENOBUFS) {
    ++counters_.tx_stalls;
    return false;
  }
  if (error != 0) {
    on_refusal(route, source_qpn, std::min(segment_bytes, bytes.size()), error);
    return true;
  }
  ++counters_.tx_sends;
  if (capture_) {
    const wire::FrameInfo frame{.flow = {taken.source, taken.destination, taken.source_port, wire::kRoceUdpPort},
                                .tos = taken.tos,
                                .ttl = usual_if_zero(taken.ttl),
                                .flow_label = taken.flow_label};
    capture_->record(frame, bytes, segment_bytes);
  }
  return true;
}

int UdpLink::put(const SendSocket& socket, const Route& route, std::span<const std::byte> bytes,
                 std::size_t segment_bytes) const noexcept {
  SocketAddress to{route.destination, wire::kRoceUdpPort, host_.address().interface_index, route.flow_label};
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  msghdr message{};
  message.msg_name = to.data();
  message.msg_namelen = to.size();
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const bool ipv4 = route.destination.is_ipv4();
  const int level = ipv4 ? IPPROTO_IP : IPPROTO_IPV6;
  cmsghdr* next = put_control(message, CMSG_FIRSTHDR(&message), level, ipv4 ? IP_TOS : IPV6_TCLASS, int{route.tos});
  next = put_control(message, next, level, ipv4 ? IP_TTL : IPV6_HOPLIMIT, int{usual_if_zero(route.ttl)});
  if (segment_bytes < bytes.size()) {
    put_control(message, next, SOL_UDP, UDP_SEGMENT, static_cast<std::uint16_t>(segment_bytes));
  } else {
    message.msg_controllen = CMSG_SPACE(sizeof(int)) * 2;
  }
  return ::sendmsg(socket.fd.get(), &message, MSG_DONTWAIT) < 0 ? errno : 0;
}

/// As soon as any socket of the network namespace has leased a label for itself, the kernel lets nobody use a label
/// without a lease. Leases are few (32 a socket) and may be had of the lower half of the labels only, so none is taken.
void UdpLink::stop_flow_labels(const Route& route) noexcept {
  flow_labels_ = false;
  log_warn(
      fmt::format("packets from {} leave without their flow label {:#07x}: the kernel refuses it (EINVAL), because "
                  "another program of this network namespace has leased one (IPV6_FLOWLABEL_MGR)",
                  address_text(route.source), route.flow_label));
}

/// A packet that is larger than the route takes would be refused as often as it is sent again. Of a super-packet older
/// kernels say so with EINVAL.
void UdpLink::on_refusal(const Route& route, std::uint32_t source_qpn, std::size_t packet_bytes, int error) noexcept {
  ++counters_.tx_errors;
  const std::string from = address_text(route.source);
  const std::string to = address_text(route.destination);
  const transport::QueuePair* const qp = host_.engine().find_qp(source_qpn);
  if (qp != nullptr && qp->init().type != transport::QpType::kUd && (error == EMSGSIZE || error == EINVAL)) {
    if (qp->state() != transport::QpState::kRts) return;  // said already
    const std::size_t headers = wire::kUdpBytes + (route.source.is_ipv4() ? wire::kIpv4Bytes : wire::kIpv6Bytes);
    const std::uint32_t mtu = route_mtu(route.source, route.destination, host_.address().interface_index);
    if (mtu != 0 && packet_bytes + headers > mtu) {
      log_error(
          fmt::format("QP {} from {} to {} fails: its packets have {} bytes, and the route takes {} (EMSGSIZE). A "
                      "path MTU of {} fits; or raise the MTU of the interface and of every hop to at least {}",
                      source_qpn, from, to, packet_bytes + headers, mtu, transport::mtu_bytes(active_mtu_for(mtu)),
                      packet_bytes + headers));
      host_.engine().tx_refused(source_qpn, monotonic_now());
      return;
    }
  }
  if (error == std::exchange(last_send_errno_, error)) return;
  log_warn("the kernel refuses packets from " + from + " to " + to + ": " + errno_text(error) +
           "; the transport retries them");
}

/// With faults every packet leaves by itself, with identification 0, so that each can be dropped or delayed alone.
void UdpLink::send_singly(const transport::TxDesc& desc, Ps now) noexcept {
  const wire::Flow flow{desc.av->local, desc.av->remote, desc.av->udp_source_port, wire::kRoceUdpPort};
  const std::size_t built = build(desc, flow, 0, std::span{arena_}.first(transport::datagram_bytes(desc)));
  if (built == 0) return;
  faults_->outgoing({.bytes = std::span{arena_}.first(built),
                     .source = flow.source,
                     .destination = flow.destination,
                     .source_qpn = desc.src_qpn,
                     .source_port = flow.source_port,
                     .tos = desc.av->traffic_class,
                     .ttl = desc.av->hop_limit,
                     .flow_label = desc.av->flow_label},
                    now, *this);
}

/// Reads and sends what is due by `due`. Of a queue pair that failed meanwhile nothing is read any more: its work
/// requests are over, and their memory is the application's again.
void UdpLink::send_late(Ps now, Ps due) noexcept {
  while (!late_dma_->empty() && late_dma_->next_deadline() <= due) {
    const transport::TxDesc& desc = late_dma_->leave();
    const transport::QueuePair* const qp = host_.engine().find_qp(desc.src_qpn);
    const bool works = qp != nullptr && transport::can_receive(qp->state());
    if (works || desc.piece_count == 0) send_singly(desc, now);
  }
}

void UdpLink::read_sources() noexcept {
  if (late_dma_) send_late(monotonic_now(), kNever);
}

/// A packet that survived the faults. A full socket is one more way to lose it.
void UdpLink::send_packet(const OutPacket& packet) noexcept {
  const Route route{.source = packet.source,
                    .destination = packet.destination,
                    .source_port = packet.source_port,
                    .tos = packet.tos,
                    .ttl = packet.ttl,
                    .flow_label = packet.flow_label};
  if (!send_bytes(route, packet.source_qpn, packet.bytes, packet.bytes.size())) ++counters_.tx_errors;
}

}  // namespace tensorwire::softhca
