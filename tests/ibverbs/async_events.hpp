// Reading asynchronous events in tests: the next one of a type, with a bound.
#pragma once

#include <poll.h>

#include "ibverbs/verbs_fixture.hpp"

namespace tensorwire::ibverbs::test {

[[nodiscard]] inline bool readable(int fd, std::chrono::milliseconds wait) {
  pollfd descriptor{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&descriptor, 1, static_cast<int>(wait.count())) == 1;
}

/// Reads and acknowledges events until one of `type`, for at most five seconds. That one is not acknowledged yet.
[[nodiscard]] inline std::optional<ibv_async_event> next_event(ibv_context* context, ibv_event_type type) {
  ibv_async_event event{};
  while (readable(context->async_fd, std::chrono::seconds(5))) {
    if (ibv_get_async_event(context, &event) != 0) return std::nullopt;
    if (event.event_type == type) return event;
    ibv_ack_async_event(&event);
  }
  return std::nullopt;
}

}  // namespace tensorwire::ibverbs::test
