#include "chaos/messages.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

namespace tensorwire::chaos {

bool tell(int socket, const std::string& message) {
  const std::size_t length = std::min(message.size(), kLongestMessage);
  return ::send(socket, message.data(), length, MSG_NOSIGNAL) == static_cast<ssize_t>(length);
}

std::optional<std::string> hear(int socket, int timeout_ms) {
  pollfd readable{socket, POLLIN, 0};
  if (::poll(&readable, 1, timeout_ms) <= 0) return std::nullopt;
  std::string message(kLongestMessage, '\0');
  const ssize_t length = ::recv(socket, message.data(), message.size(), 0);
  if (length <= 0) return std::nullopt;
  message.resize(static_cast<std::size_t>(length));
  return message;
}

}  // namespace tensorwire::chaos
