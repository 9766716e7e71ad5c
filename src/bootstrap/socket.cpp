#include "bootstrap/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <limits>
#include <memory>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace tensorwire::bootstrap {

namespace {

// A host that vanished without a reset (power, cable) shows after about 5 + 3 x 2 seconds.
constexpr int kKeepAliveIdleSeconds = 5;
constexpr int kKeepAliveIntervalSeconds = 2;
constexpr int kKeepAliveProbes = 3;
constexpr int kUserTimeoutMilliseconds = 11'000;
constexpr int kBacklog = 512;
constexpr std::chrono::milliseconds kResolvePause{200};

void set_option(int fd, int level, int name, int value) noexcept { setsockopt(fd, level, name, &value, sizeof value); }

void set_connection_options(int fd) noexcept {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMilliseconds);
}

const sockaddr* as_sockaddr(const Address& address) noexcept { return static_cast<const sockaddr*>(address.data()); }

struct LookUp {
  int error = 0;  ///< of getaddrinfo
  std::vector<Address> addresses;
};

LookUp look_up(const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  LookUp found;
  found.error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (found.error != 0) return found;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner{list, freeaddrinfo};
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    found.addresses.emplace_back(entry->ai_addr, entry->ai_addrlen);
  }
  return found;
}

/// The resolver has no bound of its own that a caller could set: it gets a thread, which is left behind when late.
LookUp look_up_until(const std::string& host, Ps deadline) {
  auto promise = std::make_shared<std::promise<LookUp>>();
  std::future<LookUp> answer = promise->get_future();
  std::thread{[promise, host] { promise->set_value(look_up(host, 0)); }}.detach();
  const Ps left = std::max<Ps>(deadline - monotonic_now(), 0);
  if (answer.wait_for(std::chrono::nanoseconds{left / kNanosecond}) == std::future_status::ready) return answer.get();
  return {EAI_AGAIN, {}};
}

Socket open_stream(int family, int& error) noexcept {
  Socket socket{::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  error = socket ? 0 : errno;
  return socket;
}

}  // namespace

void Socket::reset() noexcept {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Address::Address(const void* sockaddr, std::size_t length) : length_(length) {
  static_assert(sizeof(sockaddr_storage) <= sizeof(bytes_));
  std::memcpy(bytes_.data(), sockaddr, length);
}

int Address::family() const noexcept { return as_sockaddr(*this)->sa_family; }

std::uint16_t Address::port() const noexcept {
  // At the same place in both families.
  static_assert(offsetof(sockaddr_in6, sin6_port) == offsetof(sockaddr_in, sin_port));
  return ntohs(reinterpret_cast<const sockaddr_in*>(data())->sin_port);
}

bool Address::is_loopback() const noexcept {
  constexpr std::uint8_t kLoopbackNet = 127;
  if (family() == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(data())->sin_addr.s_addr) >> 24U == kLoopbackNet;
  }
  const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(data())->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&address) || (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == kLoopbackNet);
}

Address Address::with_port(std::uint16_t port) const {
  Address other = *this;
  const std::uint16_t network_order = htons(port);
  const std::size_t offset = family() == AF_INET6 ? offsetof(sockaddr_in6, sin6_port) : offsetof(sockaddr_in, sin_port);
  std::memcpy(other.bytes_.data() + offset, &network_order, sizeof network_order);
  return other;
}

Address Address::any() const {
  if (family() == AF_INET6) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    address.sin6_port = reinterpret_cast<const sockaddr_in6*>(data())->sin6_port;
    return {&address, sizeof address};
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = reinterpret_cast<const sockaddr_in*>(data())->sin_port;
  return {&address, sizeof address};
}

std::string Address::text() const {
  std::array<char, NI_MAXHOST> host{};
  if (getnameinfo(as_sockaddr(*this), static_cast<socklen_t>(length_), host.data(), host.size(), nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    return "?";
  }
  return host.data();
}

std::vector<Address> resolve(const std::string& host, Ps deadline) {
  LookUp found = look_up(host, AI_NUMERICHOST);
  while (found.error != 0) {
    found = look_up_until(host, deadline);
    // A pod's name may not be known yet: only that is worth waiting for.
    if (found.error == 0 || found.error != EAI_AGAIN || monotonic_now() >= deadline) break;
    std::this_thread::sleep_for(kResolvePause);
  }
  if (found.error == 0) return std::move(found.addresses);
  throw Error{"resolve the master address " + host, gai_strerror(found.error),
              "Set MASTER_ADDR (or --master-addr) to a name or address of rank 0's host"};
}

Socket listen_on(const Address& address, int& error, bool both_families) noexcept {
  Socket socket = open_stream(address.family(), error);
  if (!socket) return socket;
  set_option(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6) set_option(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, both_families ? 0 : 1);
  if (bind(socket.fd(), as_sockaddr(address), static_cast<socklen_t>(address.length())) != 0 ||
      listen(socket.fd(), kBacklog) != 0) {
    error = errno;
    return {};
  }
  return socket;
}

Socket start_to_connect(const Address& address, int& error) noexcept {
  Socket socket = open_stream(address.family(), error);
  if (!socket) return socket;
  set_connection_options(socket.fd());
  if (connect(socket.fd(), as_sockaddr(address), static_cast<socklen_t>(address.length())) == 0) return socket;
  error = errno;
  if (error != EINPROGRESS) socket.reset();
  return socket;
}

Socket connect_to(const Address& address, Ps deadline, int& error) noexcept {
  Socket socket = start_to_connect(address, error);
  if (error == EINPROGRESS) {
    error = ETIMEDOUT;
    if (wait_for(socket.fd(), POLLOUT, deadline)) {
      socklen_t length = sizeof error;
      getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
  }
  if (error != 0) return {};
  // A socket that connects to a free ephemeral port of its own host can meet itself.
  const Address self = local_address(socket);
  if (self.length() == address.length() && std::memcmp(self.data(), address.data(), self.length()) == 0) {
    error = ECONNREFUSED;
    return {};
  }
  return socket;
}

Address local_address(const Socket& socket) noexcept {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length);
  return {&address, length};
}

Address remote_address(const Socket& socket) noexcept {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length);
  return {&address, length};
}

Socket accept_from(const Socket& listener, std::string& from) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  Socket socket{accept4(listener.fd(), reinterpret_cast<sockaddr*>(&address), &length, SOCK_CLOEXEC | SOCK_NONBLOCK)};
  if (!socket) return socket;
  set_connection_options(socket.fd());
  from = Address{&address, length}.text();
  return socket;
}

IoResult read_some(const Socket& socket, std::span<std::byte> into) noexcept {
  const ssize_t count = recv(socket.fd(), into.data(), into.size(), 0);
  if (count > 0) return {IoStatus::kDone, static_cast<std::size_t>(count), 0};
  if (count == 0) return {IoStatus::kClosed, 0, 0};
  if (errno == EAGAIN || errno == EINTR) return {IoStatus::kWouldBlock, 0, 0};
  return {IoStatus::kError, 0, errno};
}

IoResult write_some(const Socket& socket, std::span<const std::byte> from) noexcept {
  const ssize_t count = send(socket.fd(), from.data(), from.size(), MSG_NOSIGNAL);
  if (count >= 0) return {IoStatus::kDone, static_cast<std::size_t>(count), 0};
  if (errno == EAGAIN || errno == EINTR) return {IoStatus::kWouldBlock, 0, 0};
  return {IoStatus::kError, 0, errno};
}

int poll_milliseconds(Ps deadline) noexcept {
  const Ps left = deadline == kNever ? kNever : deadline - monotonic_now();
  if (left <= 0) return 0;
  return static_cast<int>(std::min<Ps>(left / kMillisecond + 1, std::numeric_limits<int>::max()));
}

bool wait_for(int fd, short events, Ps deadline) noexcept {
  for (;;) {
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int ready = poll(&entry, 1, poll_milliseconds(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (monotonic_now() >= deadline) return false;
  }
}

}  // namespace tensorwire::bootstrap
