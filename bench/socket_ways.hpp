// Ways for bytes between two processes over plain sockets, for softhca_pingpong: TCP, and UDP with more or less of what
// RoCEv2 adds to it. Each owns its buffers; the sockets are the program's.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "wire/headers.hpp"
#include "wire/icrc.hpp"

namespace tensorwire::bench {

inline constexpr std::uint32_t kMessage = 256 * 1024;
inline constexpr Ps kBound = 10 * kSecond;

/// A way for bytes to get to the other process.
class Way {
 public:
  virtual ~Way() = default;
  virtual void send(std::uint32_t bytes) = 0;
  virtual void wait_for(std::uint32_t bytes) = 0;
  /// By the operation that needs a receive buffer, where the way has two.
  virtual void send_to_receive(std::uint32_t bytes) { send(bytes); }
  /// Both at once, where sending all before receiving could block.
  virtual void exchange(std::uint32_t bytes) {
    send(bytes);
    wait_for(bytes);
  }
};

[[noreturn]] inline void too_late(const char* what) { throw std::runtime_error(std::string{"nothing came: "} + what); }

inline sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

inline void must(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(std::string{what} + ": " + std::to_string(errno));
}

/// One TCP connection, TCP_NODELAY, non-blocking and polled.
class TcpWay final : public Way {
 public:
  explicit TcpWay(int fd) : fd_(fd), out_(kMessage), in_(kMessage) {
    const int one = 1;
    must(setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
  }
  void send(std::uint32_t bytes) override {
    for (std::uint32_t done = 0; done < bytes;) done += push(done, bytes);
  }
  void wait_for(std::uint32_t bytes) override {
    for (std::uint32_t done = 0; done < bytes;) done += pull(done, bytes);
  }
  void exchange(std::uint32_t bytes) override {
    std::uint32_t sent = 0, got = 0;
    while (sent < bytes || got < bytes) {
      if (sent < bytes) sent += push(sent, bytes);
      if (got < bytes) got += pull(got, bytes);
    }
  }

 private:
  std::uint32_t push(std::uint32_t from, std::uint32_t to) {
    const ssize_t n = ::send(fd_, out_.data() + from, to - from, MSG_DONTWAIT);
    return n > 0 ? static_cast<std::uint32_t>(n) : 0;
  }
  std::uint32_t pull(std::uint32_t from, std::uint32_t to) {
    const ssize_t n = ::recv(fd_, in_.data() + from, to - from, MSG_DONTWAIT);
    return n > 0 ? static_cast<std::uint32_t>(n) : 0;
  }
  int fd_;
  std::vector<std::byte> out_, in_;
};

/// What is done with the bytes of datagrams besides sending and receiving them.
enum class Work : std::uint8_t { kNone, kCrc, kCrcAndCopy, kCrcAndGather };

/// The floor under RoCEv2 packets: datagrams of the same sizes, GSO and GRO, no protocol, no copy into place.
class UdpWay final : public Way {
 public:
  UdpWay(int fd, std::uint16_t peer_port, Work work)
      : fd_(fd), to_(loopback(peer_port)), work_(work), source_(kMessage), out_(1 << 16), in_(1 << 16) {
    const int one = 1;
    must(setsockopt(fd_, SOL_UDP, UDP_GRO, &one, sizeof one) == 0, "UDP_GRO");
    const int buffer = 4 << 20;
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  }
  void send(std::uint32_t bytes) override {
    for (std::uint32_t packets = packets_of(bytes), at = 0; at < packets;) {
      const std::uint32_t batch = std::min(15U, packets - at);
      send_batch(at, bytes <= kPayload ? bytes + kHeaders : kPayload + kHeaders, batch);
      at += batch;
    }
  }
  void wait_for(std::uint32_t bytes) override {
    std::size_t missing = bytes <= kPayload ? bytes + kHeaders : packets_of(bytes) * (kPayload + kHeaders);
    const Ps end = monotonic_now() + kBound;
    while (missing > 0) {
      const ssize_t n = ::recv(fd_, in_.data(), in_.size(), MSG_DONTWAIT);
      if (n > 0) {
        missing -= std::min(missing, static_cast<std::size_t>(n));
        add_up(std::span{in_}.first(static_cast<std::size_t>(n)));
      }
      if (n < 0 && monotonic_now() > end) too_late("a datagram");
    }
  }

 private:
  static constexpr std::uint32_t kPayload = 4096, kHeaders = 16;
  static std::uint32_t packets_of(std::uint32_t bytes) { return (bytes + kPayload - 1) / kPayload; }
  void add_up(std::span<const std::byte> bytes) {
    if (work_ == Work::kNone) return;
    while (!bytes.empty()) {
      const auto packet = bytes.first(std::min<std::size_t>(bytes.size(), kPayload + kHeaders));
      sum_ = sum_ + wire::crc_update(0, packet);
      bytes = bytes.subspan(packet.size());
    }
  }
  /// Packets `first`... of the message, `count` of them, as pieces to be sent.
  std::span<iovec> pieces_of(std::uint32_t first, std::uint32_t segment, std::uint32_t count) {
    std::size_t used = 0;
    const auto add = [&](std::byte* at, std::size_t bytes) { pieces_[used++] = {at, bytes}; };
    if (work_ == Work::kNone || work_ == Work::kCrc) {
      add_up(std::span{out_}.first(std::size_t{segment} * count));
      add(out_.data(), std::size_t{segment} * count);
      return std::span{pieces_}.first(used);
    }
    const std::uint32_t payload = segment - kHeaders;
    for (std::uint32_t i = 0; i < count; ++i) {
      std::byte* const packet = out_.data() + std::size_t{segment} * i;
      const auto from = std::span{source_}.subspan(std::size_t{kPayload} * (first + i), payload);
      if (work_ == Work::kCrcAndCopy) {
        sum_ = sum_ + wire::crc_copy(0, packet + kHeaders - wire::kIcrcBytes, from);
        continue;
      }
      sum_ = sum_ + wire::crc_update(0, from);
      add(packet, kHeaders - wire::kIcrcBytes);
      add(from.data(), from.size());
      add(packet + segment - wire::kIcrcBytes, wire::kIcrcBytes);
    }
    if (used == 0) add(out_.data(), std::size_t{segment} * count);
    return std::span{pieces_}.first(used);
  }
  void send_batch(std::uint32_t first, std::uint32_t segment, std::uint32_t count) {
    const std::span<iovec> pieces = pieces_of(first, segment, count);
    alignas(cmsghdr) std::array<char, CMSG_SPACE(2)> control{};
    msghdr message{};
    message.msg_name = &to_;
    message.msg_namelen = sizeof to_;
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    if (count > 1) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_UDP;
      c->cmsg_type = UDP_SEGMENT;
      c->cmsg_len = CMSG_LEN(2);
      const auto size = static_cast<std::uint16_t>(segment);
      std::copy_n(reinterpret_cast<const char*>(&size), 2, CMSG_DATA(c));
    }
    must(::sendmsg(fd_, &message, 0) >= 0, "sendmsg");
  }
  int fd_;
  sockaddr_in to_;
  Work work_;
  volatile std::uint32_t sum_ = 0;  ///< nobody looks at it, but it must be computed
  std::vector<std::byte> source_, out_, in_;
  std::array<iovec, 3 * 15> pieces_{};
};

inline constexpr std::array kWorks{Work::kNone, Work::kCrc, Work::kCrcAndCopy, Work::kCrcAndGather};

/// [rank], and of UDP [work][rank].
struct Sockets {
  int tcp[2], udp[kWorks.size()][2];
  std::uint16_t udp_port[kWorks.size()][2];
};

inline Sockets open_sockets() {
  Sockets s{};
  socklen_t length = sizeof(sockaddr_in);
  for (std::size_t i = 0; i < 2 * kWorks.size(); ++i) {
    int& fd = s.udp[i / 2][i % 2];
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in address = loopback(0);
    must(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "bind");
    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
    s.udp_port[i / 2][i % 2] = ntohs(address.sin_port);
  }
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = loopback(0);
  must(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "bind");
  must(listen(listener, 1) == 0, "listen");
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  s.tcp[0] = socket(AF_INET, SOCK_STREAM, 0);
  must(connect(s.tcp[0], reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "connect");
  s.tcp[1] = accept(listener, nullptr, nullptr);
  close(listener);
  return s;
}

}  // namespace tensorwire::bench
