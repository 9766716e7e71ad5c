#include "verbs/completion_queue.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace tensorwire::verbs {

namespace {

/// Acknowledging takes a lock in the library: once per so many events is enough.
constexpr unsigned int kEventsPerAcknowledge = 64;

timespec to_timespec(Ps duration) noexcept {
  return {.tv_sec = static_cast<time_t>(duration / kSecond),
          .tv_nsec = static_cast<long>(duration % kSecond / kNanosecond)};
}

Ps saturating_add(Ps a, Ps b) noexcept { return b > kNever - a ? kNever : a + b; }

}  // namespace

std::shared_ptr<CompletionQueue> CompletionQueue::create(std::shared_ptr<Context> context, std::uint32_t depth,
                                                         bool with_channel) {
  const Functions& call = context->call();
  const auto limit = static_cast<std::uint32_t>(std::min(context->limits().max_cqe, std::numeric_limits<int>::max()));
  const std::string what = fmt::format("create a completion queue of {} entries on {}", depth, context->name());
  if (depth == 0 || depth > limit) throw Error{what, fmt::format("the device allows 1 to {}", limit)};

  ibv_comp_channel* channel = nullptr;
  errno = 0;
  if (with_channel) {
    channel = call.create_comp_channel(context->raw());
    if (channel == nullptr) throw system_error("create a completion channel on " + context->name(), errno);
    // A woken waiter may find that another wake-up already took the event; it must not block then.
    const int flags = fcntl(channel->fd, F_GETFL);
    fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK);
  }
  ibv_cq* cq = call.create_cq(context->raw(), static_cast<int>(depth), nullptr, channel, 0);
  if (cq == nullptr) {
    const int cause = errno;
    if (channel != nullptr) call.destroy_comp_channel(channel);
    throw system_error(what, cause);
  }
  return std::shared_ptr<CompletionQueue>{new CompletionQueue{std::move(context), channel, cq}};
}

CompletionQueue::CompletionQueue(std::shared_ptr<Context> context, ibv_comp_channel* channel, ibv_cq* cq) noexcept
    : context_(std::move(context)), channel_(channel), cq_(cq) {}

CompletionQueue::~CompletionQueue() {
  const Functions& call = context_->call();
  // destroy_cq waits until every event that was taken is acknowledged.
  if (unacknowledged_ > 0) call.ack_cq_events(cq_, unacknowledged_);
  call.destroy_cq(cq_);
  if (channel_ != nullptr) call.destroy_comp_channel(channel_);
}

int CompletionQueue::wait(std::span<ibv_wc> out, const WaitPolicy& policy) noexcept {
  const Ps start = monotonic_now();
  const Ps deadline = saturating_add(start, policy.bound);
  const Ps sleep_from = channel_ == nullptr ? kNever : saturating_add(start, policy.spin);
  bool armed = false;
  for (;;) {
    if (const int count = poll(out); count != 0) return count;
    const Ps now = monotonic_now();
    if (now >= deadline) return 0;
    if (now < sleep_from) continue;
    if (!armed) {
      // Completions that came before the request raise no event: poll once more before sleeping.
      if (const int error = arm(); error != 0) return -error;
      armed = true;
      continue;
    }
    std::array<pollfd, 2> waited{{{channel_->fd, POLLIN, 0}, {policy.wake, POLLIN, 0}}};  // -1 is never ready
    const timespec left = to_timespec(deadline - now);
    const int ready = ppoll(waited.data(), waited.size(), &left, nullptr);
    if (ready < 0 && errno != EINTR) return -errno;
    if (ready > 0 && waited[0].revents != 0) {
      if (const int error = consume_event(); error != 0) return -error;
      armed = false;
    }
    if (ready > 0 && waited[1].revents != 0) return std::max(0, poll(out));
  }
}

int CompletionQueue::arm() noexcept { return ibv_req_notify_cq(cq_, 0); }

int CompletionQueue::consume_event() noexcept {
  ibv_cq* source = nullptr;
  void* context = nullptr;
  errno = 0;
  if (context_->call().get_cq_event(channel_, &source, &context) != 0) return errno == EAGAIN ? 0 : errno;
  if (++unacknowledged_ == kEventsPerAcknowledge) {
    context_->call().ack_cq_events(cq_, unacknowledged_);
    unacknowledged_ = 0;
  }
  return 0;
}

}  // namespace tensorwire::verbs
