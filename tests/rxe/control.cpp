#include "control.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace tensorwire::rxe {

namespace {

constexpr int kBoundSeconds = 60;
constexpr std::uint32_t kMaxText = 1U << 20;
constexpr std::uint8_t kReady = 1;
constexpr std::uint8_t kFailed = 0;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error{what + ": " + std::strerror(errno)}; }

}  // namespace

Control Control::connect(const std::string& address, std::uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  if (inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) throw std::runtime_error{address + " is no IPv4 address"};
  Control control{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (::connect(control.fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) fail("connect to " + address);
  return control;
}

Control::Control(int fd) : fd_(fd) {
  if (fd_ < 0) fail("open the control connection");
  const timeval bound{.tv_sec = kBoundSeconds, .tv_usec = 0};
  const int on = 1;
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound);
  ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound);
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Control::~Control() {
  if (fd_ >= 0) ::close(fd_);
}

void Control::send_bytes(const void* bytes, std::size_t length) {
  const char* at = static_cast<const char*>(bytes);
  while (length > 0) {
    const ssize_t sent = ::send(fd_, at, length, MSG_NOSIGNAL);
    if (sent <= 0) fail("send to the other side");
    at += sent;
    length -= static_cast<std::size_t>(sent);
  }
}

void Control::receive_bytes(void* bytes, std::size_t length) {
  char* at = static_cast<char*>(bytes);
  while (length > 0) {
    const ssize_t received = ::recv(fd_, at, length, 0);
    if (received == 0) throw std::runtime_error{"the other side closed the control connection"};
    if (received < 0) fail("hear from the other side");
    at += received;
    length -= static_cast<std::size_t>(received);
  }
}

void Control::send_text(const std::string& text) {
  send(static_cast<std::uint32_t>(text.size()));
  send_bytes(text.data(), text.size());
}

std::string Control::receive_text() {
  const auto length = receive<std::uint32_t>();
  if (length > kMaxText) throw std::runtime_error{"the other side announced a text that is too long"};
  std::string text(length, '\0');
  receive_bytes(text.data(), text.size());
  return text;
}

void Control::barrier() {
  send(kReady);
  if (receive<std::uint8_t>() != kReady) throw std::runtime_error{"the other side: " + receive_text()};
}

void Control::complain(const std::string& text) {
  send(kFailed);
  send_text(text);
}

std::uint32_t Control::local_ipv4() const {
  sockaddr_in local{};
  socklen_t length = sizeof local;
  if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&local), &length) != 0) fail("read the local address");
  return local.sin_addr.s_addr;
}

int listen_on(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("open a listening socket");
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail("bind the control port");
  if (::listen(fd, 4) != 0) fail("listen on the control port");
  return fd;
}

}  // namespace tensorwire::rxe
