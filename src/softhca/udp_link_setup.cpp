#include <netinet/udp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "softhca/address_claim.hpp"
#include "softhca/socket_address.hpp"
#include "softhca/udp_link.hpp"
#include "transport/attributes.hpp"
#include "wire/headers.hpp"

namespace tensorwire::softhca {

namespace {

constexpr std::size_t kMaxSendSockets = 16;  ///< per address of ours
constexpr std::uint16_t kFirstSourcePort = 0xc000;
constexpr std::uint16_t kSourcePortMask = 0x3fff;

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

}  // namespace

UdpLink::UdpLink(LinkHost& host, UniqueFd socket, UdpLinkConfig config)
    : host_(host),
      wanted_receive_buffer_(config.receive_buffer),
      other_sockets_(::epoll_create1(EPOLL_CLOEXEC)),
      capture_(std::move(config.capture)),
      faults_(std::move(config.faults)),
      late_dma_(faults_ && faults_->config().late_dma != 0 ? std::make_unique<LateDma>(faults_->config()) : nullptr),
      max_segments_(config.segment_offload ? kMaxSegments : 1),
      arena_(kMaxTxBatch * kMaxPacketBytes),
      receive_buffer_(1U << 16) {
  if (!other_sockets_) throw system_error("set up the RoCEv2 sockets", errno);
  if (config.neighbours) neighbours_.emplace(std::move(config.neighbours), host_.address().ipv4);
  add_local(wire::Gid::from_ipv4(host_.address().ipv4), std::move(socket));
}

void UdpLink::add_local(const wire::Gid& gid, UniqueFd socket) {
  const int fd = socket.get();
  must_set(fd, SOL_UDP, UDP_GRO, 1, "UDP_GRO");
  must_set(fd, SOL_SOCKET, SO_RXQ_OVFL, 1, "SO_RXQ_OVFL");
  if (gid.is_ipv4()) {
    must_set(fd, IPPROTO_IP, IP_RECVTOS, 1, "IP_RECVTOS");
  } else {
    must_set(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1, "IPV6_RECVTCLASS");
    must_set(fd, IPPROTO_IPV6, kIpv6Flowinfo, 1, "IPV6_FLOWINFO");
    // Other HCAs leave the UDP checksum out: the ICRC stands for it (RoCEv2 annex A17.9.1).
    must_set(fd, SOL_UDP, UDP_NO_CHECK6_RX, 1, "UDP_NO_CHECK6_RX");
  }
  receive_buffer_bytes_ = set_receive_buffer(fd, wanted_receive_buffer_);
  if (!locals_.empty()) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(other_sockets_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      throw system_error("watch the RoCEv2 socket of " + address_text(gid), errno);
    }
  }
  Local& local = locals_.emplace_back(Local{.gid = gid, .receive_socket = std::move(socket)});
  if (neighbours_) {
    local.group.emplace();
    ask_group(local, monotonic_now());
  }
  log_debug("receive buffer on " + address_text(gid) + " is " + std::to_string(receive_buffer_bytes_) + " bytes");
}

void UdpLink::use_address(const wire::Gid& local) {
  if (find_local(local) != nullptr) return;
  const HostAddress& host = host_.address();
  add_local(local, bind_roce_port(local, host.interface_index, host.shared));
}

const UdpLink::SendSocket* UdpLink::send_socket(const wire::Gid& local, std::uint16_t port) const noexcept {
  for (const SendSocket& socket : send_sockets_) {
    if (socket.port == port && socket.local == local) return &socket;
  }
  return nullptr;
}

const UdpLink::SendSocket* UdpLink::bind_send_socket(const wire::Gid& local, std::uint16_t port) {
  UniqueFd fd{::socket(family_of(local), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!fd) throw system_error("open a UDP send socket", errno);
  if (local.is_ipv4()) {
    must_set(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO, "IP_MTU_DISCOVER");
  } else {
    must_set(fd.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO, "IPV6_MTU_DISCOVER");
    must_set(fd.get(), IPPROTO_IPV6, kIpv6FlowinfoSend, 1, "IPV6_FLOWINFO_SEND");
  }
  const SocketAddress address{local, port, host_.address().interface_index};
  if (::bind(fd.get(), address.data(), address.size()) != 0) {
    if (errno == EADDRINUSE) return nullptr;
    throw system_error("bind a UDP send socket on " + address_text(local), errno);
  }
  // Never read: a stray datagram must not cost memory for long.
  const int smallest = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &smallest, sizeof smallest);
  set_send_buffer(fd.get());
  return &send_sockets_.emplace_back(SendSocket{std::move(fd), local, port});
}

std::uint16_t UdpLink::source_port_for(const wire::Gid& local, std::uint32_t flow_label, std::uint32_t qpn,
                                       std::uint32_t dest_qpn) {
  const std::uint16_t wanted = transport::entropy_port(flow_label, qpn, dest_qpn);
  if (const SendSocket* socket = send_socket(local, wanted)) return socket->port;
  std::vector<std::uint16_t> bound;
  for (const SendSocket& socket : send_sockets_) {
    if (socket.local == local) bound.push_back(socket.port);
  }
  if (bound.size() >= kMaxSendSockets) return bound[wanted % bound.size()];
  for (std::uint16_t step = 0; step <= kSourcePortMask; ++step) {
    const auto port = static_cast<std::uint16_t>(kFirstSourcePort | ((wanted + step) & kSourcePortMask));
    if (const SendSocket* socket = send_socket(local, port)) return socket->port;
    if (const SendSocket* socket = bind_send_socket(local, port)) return socket->port;
  }
  throw system_error("bind a UDP source port from 49152 up on " + address_text(local), EADDRINUSE);
}

void UdpLink::close_sockets() noexcept {
  for (Local& local : locals_) local.receive_socket.reset();
  for (SendSocket& socket : send_sockets_) socket.fd.reset();
  other_sockets_.reset();
  if (neighbours_) neighbours_->close();
}

}  // namespace tensorwire::softhca
