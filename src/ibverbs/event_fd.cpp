#include "ibverbs/event_fd.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/error.hpp"

namespace tensorwire::ibverbs {

EventFd::EventFd() : fd_(::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC)) {
  if (fd_ < 0) throw system_error("create the file descriptor of an event queue", errno, "raise the limit: ulimit -n");
}

EventFd::~EventFd() { ::close(fd_); }

void EventFd::add() noexcept {
  const std::uint64_t one = 1;
  while (::write(fd_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void EventFd::take() noexcept {
  std::uint64_t one = 0;
  while (::read(fd_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

int EventFd::wait() const noexcept {
  if ((::fcntl(fd_, F_GETFL) & O_NONBLOCK) != 0) {
    errno = EAGAIN;
    return -1;
  }
  pollfd descriptor{.fd = fd_, .events = POLLIN, .revents = 0};
  return ::poll(&descriptor, 1, -1) < 0 ? -1 : 0;
}

}  // namespace tensorwire::ibverbs
