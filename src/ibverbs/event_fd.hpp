// The file descriptor of a queue of events, as programs use it: blocking, with O_NONBLOCK, in poll and in epoll. It is
// an eventfd whose count equals the number of queued events. Its owner calls everything but wait() under the queue's
// lock.
#pragma once

namespace tensorwire::ibverbs {

class EventFd {
 public:
  /// @throws Error when the process has no descriptor left.
  EventFd();
  ~EventFd();
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// One event was queued.
  void add() noexcept;
  /// One event was taken from the queue. Never blocks, because the count is not zero then.
  void take() noexcept;
  /// Without the lock: waits until an event is queued. Returns 0; or -1 with errno EAGAIN (O_NONBLOCK is set) or EINTR.
  [[nodiscard]] int wait() const noexcept;

 private:
  int fd_;
};

}  // namespace tensorwire::ibverbs
