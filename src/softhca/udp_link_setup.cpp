#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "softhca/hello.hpp"
#include "softhca/udp_link.hpp"
#include "wire/headers.hpp"

namespace tensorwire::softhca {

namespace {

constexpr std::size_t kMaxSendSockets = 16;
constexpr std::uint16_t kFirstSourcePort = 0xc000;
constexpr std::uint16_t kSourcePortMask = 0x3fff;

constexpr std::uint8_t kHelloRepeats = 3;
constexpr Ps kHelloInterval = 20 * kMillisecond;

void must_set(int fd, int level, int option, int value, const char* what) {
  if (::setsockopt(fd, level, option, &value, sizeof value) != 0) {
    throw system_error(std::string{"set up the RoCEv2 socket: "} + what, errno, "Linux 5.0 or newer is needed");
  }
}

/// Asks for a buffer that reads back as `wanted`: the kernel doubles what SO_RCVBUF says. FORCE may exceed rmem_max but
/// needs CAP_NET_ADMIN.
std::uint64_t set_receive_buffer(int fd, std::uint64_t wanted) noexcept {
  const int half = static_cast<int>(std::min<std::uint64_t>(wanted / 2, 1U << 30));
  if (::setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &half, sizeof half) != 0) {
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &half, sizeof half);
  }
  int real = 0;
  socklen_t length = sizeof real;
  ::getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &real, &length);
  return static_cast<std::uint64_t>(std::max(real, 0));
}

/// Room for a whole window, so that a network card's queue and not the socket is what fills first.
void set_send_buffer(int fd) noexcept {
  const int wanted = 4 << 20;
  if (::setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &wanted, sizeof wanted) != 0) {
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted);
  }
}

/// The UDP source port as Linux derives it (rdma_flow_label_to_udp_sport, rdma_calc_flow_label): equal inputs take
/// equal ECMP paths whichever HCA sends.
std::uint16_t derive_source_port(std::uint32_t flow_label, std::uint32_t qpn, std::uint32_t dest_qpn) noexcept {
  if (flow_label == 0) {
    std::uint64_t product = std::uint64_t{qpn} * dest_qpn;
    product ^= product >> 20;
    product ^= product >> 40;
    flow_label = static_cast<std::uint32_t>(product & 0xf'ffff);
  }
  return static_cast<std::uint16_t>(kFirstSourcePort |
                                    ((flow_label & kSourcePortMask) ^ ((flow_label & 0xf'c000) >> 14)));
}

}  // namespace

UdpLink::UdpLink(LinkHost& host, UniqueFd socket, UdpLinkConfig config)
    : host_(host),
      receive_socket_(std::move(socket)),
      capture_(std::move(config.capture)),
      faults_(std::move(config.faults)),
      max_segments_(config.segment_offload ? kMaxSegments : 1),
      arena_(kMaxTxBatch * kMaxPacketBytes),
      receive_buffer_(1U << 16) {
  open_receive_socket(config.receive_buffer);
  send_sockets_.reserve(kMaxSendSockets);
}

void UdpLink::open_receive_socket(std::uint64_t wanted_buffer) {
  const int fd = receive_socket_.get();
  must_set(fd, SOL_UDP, UDP_GRO, 1, "UDP_GRO");
  must_set(fd, IPPROTO_IP, IP_RECVTOS, 1, "IP_RECVTOS");
  must_set(fd, SOL_SOCKET, SO_RXQ_OVFL, 1, "SO_RXQ_OVFL");
  receive_buffer_bytes_ = set_receive_buffer(fd, wanted_buffer);
  log_debug("receive buffer on " + wire::ipv4_text(host_.address()) + " is " + std::to_string(receive_buffer_bytes_) +
            " bytes");
}

const UdpLink::SendSocket* UdpLink::send_socket(std::uint16_t port) const noexcept {
  for (const SendSocket& socket : send_sockets_) {
    if (socket.port == port) return &socket;
  }
  return nullptr;
}

const UdpLink::SendSocket* UdpLink::bind_send_socket(std::uint16_t port) {
  UniqueFd fd{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!fd) throw system_error("open a UDP send socket", errno);
  must_set(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO, "IP_MTU_DISCOVER");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(host_.address());
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EADDRINUSE) return nullptr;
    throw system_error("bind a UDP send socket on " + wire::ipv4_text(host_.address()), errno);
  }
  // Never read: a stray datagram must not cost memory for long.
  const int smallest = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &smallest, sizeof smallest);
  set_send_buffer(fd.get());
  return &send_sockets_.emplace_back(SendSocket{std::move(fd), port});
}

std::uint16_t UdpLink::source_port_for(std::uint32_t flow_label, std::uint32_t qpn, std::uint32_t dest_qpn) {
  const std::uint16_t wanted = derive_source_port(flow_label, qpn, dest_qpn);
  if (const SendSocket* socket = send_socket(wanted)) return socket->port;
  if (send_sockets_.size() >= kMaxSendSockets) return send_sockets_[wanted % kMaxSendSockets].port;
  for (std::uint16_t step = 0; step <= kSourcePortMask; ++step) {
    const auto port = static_cast<std::uint16_t>(kFirstSourcePort | ((wanted + step) & kSourcePortMask));
    if (const SendSocket* socket = send_socket(port)) return socket->port;
    if (const SendSocket* socket = bind_send_socket(port)) return socket->port;
  }
  throw system_error("bind a UDP source port from 49152 up on " + wire::ipv4_text(host_.address()), EADDRINUSE);
}

transport::PathId UdpLink::path_to(std::uint32_t peer_ipv4) {
  Peer* const peer = peers_.find_or_add(peer_ipv4);
  if (peer == nullptr) throw Error{"connect to " + wire::ipv4_text(peer_ipv4), "too many peers (4096)"};
  if (!peer->path) {
    peer->path = host_.engine().create_path({.window_bytes = window_for(peer->buffer_bytes, peer->sharers)});
    host_.bind_path(*peer->path, *this);
    ++paths_made_;
    peer->hellos_left = peer->hello_seen ? 1 : kHelloRepeats;
    const Ps now = monotonic_now();
    send_hello(*peer, !peer->hello_seen, now);
    if (paths_made_ >= kExpectedSharers) announce_to_all(now);  // each one's share has become smaller
  }
  return *peer->path;
}

void UdpLink::close_sockets() noexcept {
  receive_socket_.reset();
  for (SendSocket& socket : send_sockets_) socket.fd.reset();
}

void UdpLink::send_hello(Peer& peer, bool answer_wanted, Ps now) noexcept {
  if (send_sockets_.empty()) return;  // nothing of ours can leave yet
  const std::uint16_t port = send_sockets_.front().port;
  const Hello hello{
      .answer_wanted = answer_wanted, .sharers = paths_made_, .receive_buffer_bytes = receive_buffer_bytes_};
  const wire::Ipv4Flow flow{host_.address(), peer.ipv4, port, wire::kRoceUdpPort};
  const auto bytes = encode_hello(hello, flow);
  send_bytes({.destination = peer.ipv4, .source_port = port}, bytes, bytes.size());
  if (peer.hellos_left > 0) --peer.hellos_left;
  peer.next_hello = answer_wanted && peer.hellos_left > 0 ? now + kHelloInterval : kNever;
}

void UdpLink::on_hello(std::span<const std::byte> bytes, const wire::Ipv4Flow& flow, Ps now) noexcept {
  const std::optional<Hello> hello = parse_hello(bytes, flow);
  Peer* const peer = hello ? peers_.find_or_add(flow.source) : nullptr;
  if (peer == nullptr) {
    ++counters_.rx_malformed;
    return;
  }
  peer->hello_seen = true;
  peer->foreign = false;
  peer->buffer_bytes = hello->receive_buffer_bytes;
  peer->sharers = hello->sharers;
  peer->next_hello = kNever;
  if (peer->path) host_.engine().set_path_window(*peer->path, window_for(peer->buffer_bytes, peer->sharers));
  if (hello->answer_wanted) send_hello(*peer, false, now);
}

void UdpLink::announce_to_all(Ps now) noexcept {
  for (const auto& peer : peers_.all()) {
    if (peer->path && peer->hello_seen) send_hello(*peer, false, now);
  }
}

}  // namespace tensorwire::softhca
