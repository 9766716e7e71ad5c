// TCP sockets as this room uses them: non-blocking, close-on-exec, never a SIGPIPE, a dead host noticed by keep-alive.
// A Socket owns its descriptor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/time.hpp"

namespace tensorwire::bootstrap {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) noexcept : fd_(fd) {}
  ~Socket() { reset(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept;

 private:
  int fd_ = -1;
};

/// An address of either family, with room for the port.
class Address {
 public:
  Address() = default;
  Address(const void* sockaddr, std::size_t length);

  [[nodiscard]] Address with_port(std::uint16_t port) const;
  [[nodiscard]] Address any() const;  ///< 0.0.0.0 or :: with the same family and port
  [[nodiscard]] int family() const noexcept;
  [[nodiscard]] std::uint16_t port() const noexcept;
  [[nodiscard]] bool is_loopback() const noexcept;
  [[nodiscard]] std::string text() const;  ///< "10.0.0.1", without the port
  [[nodiscard]] const void* data() const noexcept { return bytes_.data(); }
  [[nodiscard]] std::size_t length() const noexcept { return length_; }

 private:
  alignas(8) std::array<std::byte, 128> bytes_{};
  std::size_t length_ = 0;
};

/// All addresses of a host name, in the resolver's order. @throws Error when it does not resolve before `deadline`.
[[nodiscard]] std::vector<Address> resolve(const std::string& host, Ps deadline);

/// A listening socket, or an empty one with `error` set to the errno.
/// @param both_families  one on [::] takes IPv4 connections too
[[nodiscard]] Socket listen_on(const Address& address, int& error, bool both_families = false) noexcept;

/// A connected socket, or an empty one with `error` set to the errno (ETIMEDOUT at the deadline).
[[nodiscard]] Socket connect_to(const Address& address, Ps deadline, int& error) noexcept;

/// A socket that is being connected: it can be written when it is, and read to learn why not. Empty: not even begun.
[[nodiscard]] Socket start_to_connect(const Address& address, int& error) noexcept;

/// The two ends of a connection, or a listener's.
[[nodiscard]] Address local_address(const Socket& socket) noexcept;
[[nodiscard]] Address remote_address(const Socket& socket) noexcept;

/// Options of an accepted connection; `from` is its address as text.
[[nodiscard]] Socket accept_from(const Socket& listener, std::string& from);

/// What a non-blocking read or write achieved.
enum class IoStatus : std::uint8_t { kDone, kWouldBlock, kClosed, kError };

struct IoResult {
  IoStatus status = IoStatus::kDone;
  std::size_t bytes = 0;
  int error = 0;
};

IoResult read_some(const Socket& socket, std::span<std::byte> into) noexcept;
IoResult write_some(const Socket& socket, std::span<const std::byte> from) noexcept;

/// Waits for `events` of poll(2); false at the deadline.
bool wait_for(int fd, short events, Ps deadline) noexcept;

/// Milliseconds for poll(2), rounded up; 0 when the deadline has passed.
[[nodiscard]] int poll_milliseconds(Ps deadline) noexcept;

}  // namespace tensorwire::bootstrap
