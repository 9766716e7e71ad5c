#include "cli/bench/udp_floor.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "wire/headers.hpp"

namespace tensorwire::cli {

namespace {

constexpr std::uint64_t kMtu = 4096;
constexpr std::uint64_t kPlainOverhead = wire::kBthBytes + wire::kIcrcBytes;
constexpr std::uint64_t kMaxDatagramBytes = 65507;
constexpr int kReceiveBufferBytes = 8 << 20;
constexpr Ps kLossTimeout = 200 * kMillisecond;

std::uint64_t packets_of(std::uint64_t bytes) { return std::max<std::uint64_t>((bytes + kMtu - 1) / kMtu, 1); }

/// UDP payload bytes of a WRITE WITH IMMEDIATE of `bytes`.
std::uint64_t wire_bytes(std::uint64_t bytes) {
  return bytes + packets_of(bytes) * kPlainOverhead + wire::kRethBytes + wire::kImmediateBytes;
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

void set_option(int fd, int level, int name, int value) {
  if (setsockopt(fd, level, name, &value, sizeof value) != 0) throw system_error("set up the UDP floor", errno);
}

}  // namespace

UdpFloor::UdpFloor(int rank, int ranks, Waiter waiter)
    : rank_(rank), waiter_(waiter), received_(static_cast<std::size_t>(ranks)), padding_(1 << 16) {
  fd_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd_ < 0) throw system_error("open a UDP socket", errno);
  set_option(fd_, SOL_SOCKET, SO_RCVBUF, kReceiveBufferBytes);
  set_option(fd_, SOL_SOCKET, SO_SNDBUF, kReceiveBufferBytes);
  set_option(fd_, SOL_UDP, UDP_GRO, 1);
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  if (bind(fd_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw system_error("bind a UDP socket on 127.0.0.1", errno);
  }
  port_ = ntohs(address.sin_port);
}

UdpFloor::~UdpFloor() {
  if (fd_ >= 0) close(fd_);
}

void UdpFloor::set_peer_ports(std::vector<std::uint16_t> ports) { ports_ = std::move(ports); }

/// The next bytes of the tensor; where it ends, padding.
std::array<iovec, 2> UdpFloor::next_source(std::uint64_t bytes) noexcept {
  if (in_position_ >= buffers_.in.size()) in_position_ = 0;
  const std::size_t from_tensor = std::min<std::size_t>(bytes, buffers_.in.size() - in_position_);
  auto* start = const_cast<std::byte*>(buffers_.in.data()) + in_position_;
  in_position_ += from_tensor;
  return {iovec{start, from_tensor}, iovec{padding_.data(), bytes - from_tensor}};
}

void UdpFloor::send_batch(int peer, std::uint64_t packets, std::uint64_t packet_bytes) {
  sockaddr_in to = loopback(ports_[static_cast<std::size_t>(peer)]);
  std::array<iovec, 2> source = next_source(packets * packet_bytes);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(std::uint16_t))] = {};
  msghdr message{};
  message.msg_name = &to;
  message.msg_namelen = sizeof to;
  message.msg_iov = source.data();
  message.msg_iovlen = source.size();
  if (packets > 1) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* segment = CMSG_FIRSTHDR(&message);
    segment->cmsg_level = SOL_UDP;
    segment->cmsg_type = UDP_SEGMENT;
    segment->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
    const auto size = static_cast<std::uint16_t>(packet_bytes);
    std::memcpy(CMSG_DATA(segment), &size, sizeof size);
  }
  while (sendmsg(fd_, &message, 0) < 0 && (errno == EAGAIN || errno == ENOBUFS)) receive_some();
  packets_sent_ += packets;
}

/// First (with RETH), Middles in batches that fit a datagram, Last (with the immediate): as the soft HCA sends them.
void UdpFloor::send_message(int peer, std::uint64_t payload_bytes) {
  const std::uint64_t packets = packets_of(payload_bytes);
  if (packets == 1) {
    send_batch(peer, 1, payload_bytes + kPlainOverhead + wire::kRethBytes + wire::kImmediateBytes);
    return;
  }
  send_batch(peer, 1, kMtu + kPlainOverhead + wire::kRethBytes);
  constexpr std::uint64_t kBatch = kMaxDatagramBytes / (kMtu + kPlainOverhead);
  for (std::uint64_t middles = packets - 2; middles > 0;) {
    const std::uint64_t now = std::min(middles, kBatch);
    send_batch(peer, now, kMtu + kPlainOverhead);
    middles -= now;
  }
  send_batch(peer, 1, payload_bytes - (packets - 1) * kMtu + kPlainOverhead + wire::kImmediateBytes);
}

bool UdpFloor::receive_some() {
  sockaddr_in from{};
  if (out_position_ >= buffers_.out.size()) out_position_ = 0;
  const std::size_t room = buffers_.out.size() - out_position_;
  std::array<iovec, 2> target{iovec{buffers_.out.data() + out_position_, room},
                              iovec{padding_.data(), padding_.size()}};
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof from;
  message.msg_iov = target.data();
  message.msg_iovlen = target.size();
  const ssize_t got = recvmsg(fd_, &message, MSG_DONTWAIT);
  if (got < 0) return false;
  out_position_ += static_cast<std::size_t>(got);
  const auto peer = std::find(ports_.begin(), ports_.end(), ntohs(from.sin_port));
  if (peer != ports_.end()) {
    received_[static_cast<std::size_t>(peer - ports_.begin())] += static_cast<std::uint64_t>(got);
  }
  return true;
}

bool UdpFloor::wait_for(const ExchangePhase& phase) {
  const auto complete = [&] {
    for (std::size_t peer = 0; peer < received_.size(); ++peer) {
      const std::uint64_t bytes = phase.receive_bytes[peer];
      if (bytes != 0 && received_[peer] < wire_bytes(bytes)) return false;
    }
    return true;
  };
  Ps last_arrival = monotonic_now();
  while (!complete()) {
    if (receive_some()) {
      last_arrival = monotonic_now();
      waiter_.reset();
    } else if (monotonic_now() - last_arrival > kLossTimeout) {
      return false;
    } else {
      waiter_.idle();
    }
  }
  for (std::size_t peer = 0; peer < received_.size(); ++peer) {
    if (phase.receive_bytes[peer] != 0) received_[peer] -= wire_bytes(phase.receive_bytes[peer]);
  }
  return true;
}

void UdpFloor::forget_arrivals() noexcept {
  while (receive_some()) {
  }
  std::fill(received_.begin(), received_.end(), 0);
}

bool UdpFloor::exchange(const ExchangePattern& pattern, const ExchangeBuffers& buffers) {
  buffers_ = buffers;
  in_position_ = out_position_ = 0;
  const int ranks = static_cast<int>(received_.size());
  for (const ExchangePhase& phase : pattern) {
    for (int step = 1; step < ranks; ++step) {
      const int peer = (rank_ + step) % ranks;
      const std::uint64_t bytes = phase.send_bytes[static_cast<std::size_t>(peer)];
      if (bytes != 0) send_message(peer, bytes);
    }
    if (!wait_for(phase)) {
      forget_arrivals();
      return false;
    }
  }
  return true;
}

}  // namespace tensorwire::cli
