// The TCP connection beside a session: settings, addresses, barriers and results go over it, never payload.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

namespace tensorwire::rxe {

/// Owns the socket. Every call throws std::runtime_error when the peer is gone or silent for a minute.
class Control {
 public:
  [[nodiscard]] static Control connect(const std::string& address, std::uint16_t port);
  explicit Control(int fd);
  Control(Control&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Control& operator=(Control&&) = delete;
  ~Control();

  /// A plain struct as it lies in memory.
  template <typename Plain>
  void send(const Plain& plain) {
    static_assert(std::is_trivially_copyable_v<Plain>);
    send_bytes(&plain, sizeof plain);
  }
  template <typename Plain>
  [[nodiscard]] Plain receive() {
    static_assert(std::is_trivially_copyable_v<Plain>);
    Plain plain;
    receive_bytes(&plain, sizeof plain);
    return plain;
  }
  void send_text(const std::string& text);
  [[nodiscard]] std::string receive_text();

  /// Returns when both sides have called it; throws what the other side complain()ed of instead.
  void barrier();
  /// In place of the next barrier().
  void complain(const std::string& text);

  /// Of this side, in network byte order.
  [[nodiscard]] std::uint32_t local_ipv4() const;

 private:
  void send_bytes(const void* bytes, std::size_t length);
  void receive_bytes(void* bytes, std::size_t length);

  int fd_;
};

/// A listening socket on every address; owned by the caller, who ends with the process.
[[nodiscard]] int listen_on(std::uint16_t port);

}  // namespace tensorwire::rxe
