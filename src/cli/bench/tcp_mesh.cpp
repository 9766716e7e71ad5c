#include "cli/bench/tcp_mesh.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace tensorwire::cli {

namespace {

constexpr Ps kStallTimeout = 10 * kSecond;
constexpr timeval kConnectTimeout{10, 0};
constexpr int kBufferBytes = 4 << 20;

/// Where a rank's listener is: IPv4 address and port, both in network order as the kernel gives them.
struct Endpoint {
  std::uint32_t address = 0;
  std::uint16_t port = 0;
};

std::string peer_name(int peer) { return "TCP connection to rank " + std::to_string(peer); }

sockaddr_in socket_address(std::uint32_t address, std::uint16_t port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_addr.s_addr = address;
  result.sin_port = port;
  return result;
}

/// With buffers that hold a whole message, before the handshake: left to the kernel's auto-tuning, some connections
/// never grow a window of 128 KiB and are half as fast for their whole life.
int tcp_socket() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kBufferBytes, sizeof kBufferBytes) != 0 ||
      setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kBufferBytes, sizeof kBufferBytes) != 0) {
    throw system_error("open a TCP socket", errno);
  }
  return fd;
}

void make_ready(int fd) {
  const int on = 1;
  const int flags = fcntl(fd, F_GETFL);
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 || flags < 0 ||
      fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    throw system_error("set up a TCP connection", errno);
  }
}

void send_all(int fd, const void* data, std::size_t bytes) {
  if (send(fd, data, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) throw system_error("greet a TCP peer", errno);
}

bool is_loopback(std::uint32_t address) { return ntohl(address) >> 24U == IN_LOOPBACKNET; }

/// Loopback's where all ranks are on one host, and this host's own otherwise.
std::uint32_t address_to_use(bootstrap::Group& group, std::uint32_t own) {
  for (const auto& bytes : group.all_gather(std::as_bytes(std::span{&own, 1}))) {
    std::uint32_t theirs = 0;
    std::memcpy(&theirs, bytes.data(), std::min(bytes.size(), sizeof theirs));
    if (theirs != own && !is_loopback(theirs)) return own;
  }
  return htonl(INADDR_LOOPBACK);
}

}  // namespace

TcpMesh::TcpMesh(bootstrap::Group& group, std::uint32_t address)
    : rank_(group.rank()), sockets_(static_cast<std::size_t>(group.world_size()), -1) {
  listen_and_connect(group, address_to_use(group, address));
}

TcpMesh::~TcpMesh() {
  for (const int fd : sockets_) {
    if (fd >= 0) close(fd);
  }
}

/// Every rank connects to the lower ranks and accepts the higher ones, who say their number first.
void TcpMesh::listen_and_connect(bootstrap::Group& group, std::uint32_t address) {
  const int listener = tcp_socket();
  sockaddr_in mine = socket_address(address, 0);
  socklen_t length = sizeof mine;
  if (bind(listener, reinterpret_cast<sockaddr*>(&mine), length) != 0 || listen(listener, ranks()) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&mine), &length) != 0 ||
      setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &kConnectTimeout, sizeof kConnectTimeout) != 0) {
    throw system_error("listen for TCP peers", errno);
  }
  const Endpoint endpoint{mine.sin_addr.s_addr, mine.sin_port};
  const auto all = group.all_gather(std::as_bytes(std::span{&endpoint, 1}));

  for (int peer = 0; peer < rank_; ++peer) {
    Endpoint theirs;
    std::memcpy(&theirs, all[static_cast<std::size_t>(peer)].data(), sizeof theirs);
    const sockaddr_in to = socket_address(theirs.address, theirs.port);
    const int fd = tcp_socket();
    sockets_[static_cast<std::size_t>(peer)] = fd;
    if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) throw system_error(peer_name(peer), errno);
    send_all(fd, &rank_, sizeof rank_);
    make_ready(fd);
  }
  for (int waiting = rank_ + 1; waiting < ranks(); ++waiting) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    int peer = -1;
    if (fd < 0 || recv(fd, &peer, sizeof peer, MSG_WAITALL) != sizeof peer)
      throw system_error("accept a TCP peer", errno);
    if (peer <= rank_ || peer >= ranks())
      throw Error{"accept a TCP peer", "it says it is rank " + std::to_string(peer)};
    sockets_[static_cast<std::size_t>(peer)] = fd;
    make_ready(fd);
  }
  close(listener);
}

BareTcpExchange::BareTcpExchange(bootstrap::Group& group, std::uint32_t address, Waiter waiter)
    : mesh_(group, address), waiter_(waiter) {}

std::uint64_t BareTcpExchange::write_some(int peer, std::uint64_t left, std::span<const std::byte> in) {
  // The last `left` bytes, so that a message walks through the tensor.
  const std::size_t bytes = std::min<std::uint64_t>(left, in.size());
  const ssize_t sent = send(mesh_.socket_of(peer), in.last(bytes).data(), bytes, MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN) throw system_error(peer_name(peer), errno);
  return sent < 0 ? 0 : static_cast<std::uint64_t>(sent);
}

std::uint64_t BareTcpExchange::read_some(int peer, std::uint64_t left, std::span<std::byte> out) {
  const std::size_t bytes = std::min<std::uint64_t>(left, out.size());
  const ssize_t got = recv(mesh_.socket_of(peer), out.last(bytes).data(), bytes, 0);
  if (got == 0) throw Error{peer_name(peer), "closed by the peer"};
  if (got < 0 && errno != EAGAIN) throw system_error(peer_name(peer), errno);
  return got < 0 ? 0 : static_cast<std::uint64_t>(got);
}

void BareTcpExchange::exchange(const ExchangePhase& phase, const ExchangeBuffers& buffers) {
  std::vector<std::uint64_t> to_send = phase.send_bytes;
  std::vector<std::uint64_t> to_receive = phase.receive_bytes;
  Ps last_move = monotonic_now();
  for (bool open = true; open;) {
    open = false;
    std::uint64_t moved = 0;
    for (int step = 1; step < mesh_.ranks(); ++step) {
      const int peer = (mesh_.rank() + step) % mesh_.ranks();
      const auto at = static_cast<std::size_t>(peer);
      if (to_send[at] != 0) {
        const std::uint64_t bytes = write_some(peer, to_send[at], buffers.in);
        to_send[at] -= bytes;
        moved += bytes;
      }
      if (to_receive[at] != 0) {
        const std::uint64_t bytes = read_some(peer, to_receive[at], buffers.out);
        to_receive[at] -= bytes;
        moved += bytes;
      }
      open = open || to_send[at] != 0 || to_receive[at] != 0;
    }
    if (moved != 0) {
      last_move = monotonic_now();
      waiter_.reset();
    } else if (open) {
      if (monotonic_now() - last_move > kStallTimeout) throw Error{"bare TCP exchange", "nothing moved for 10 s"};
      waiter_.idle();
    }
  }
}

}  // namespace tensorwire::cli
