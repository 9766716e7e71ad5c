// Completions, by polling and by completion channel. A CompletionQueue owns its ibv_cq and, when asked for, the channel
// that wakes a sleeping waiter. poll() and wait() are the data path: they return status and never throw or allocate.
// One thread at a time.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <span>

#include "base/time.hpp"
#include "verbs/context.hpp"

namespace tensorwire::verbs {

/// How a waiter spends its time: spin on poll, then sleep on the channel.
struct WaitPolicy {
  Ps bound = 100 * kMillisecond;  ///< return 0 after this long at the latest
  Ps spin = 50 * kMicrosecond;    ///< poll this long before the first sleep; kNever: never sleep
  int wake = -1;                  ///< return 0 when this descriptor can be read; -1: none
};

class CompletionQueue {
 public:
  /// @param depth  completions that fit without overflow; the device may give more
  /// @param with_channel  wait() may sleep; without it, wait() only polls
  /// @throws Error when the device refuses.
  [[nodiscard]] static std::shared_ptr<CompletionQueue> create(std::shared_ptr<Context> context, std::uint32_t depth,
                                                               bool with_channel = true);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  /// Takes what is there, without waiting. Returns the number of completions, or a negative errno.
  int poll(std::span<ibv_wc> out) noexcept { return ibv_poll_cq(cq_, static_cast<int>(out.size()), out.data()); }

  /// Waits for at least one completion: 0 when the bound passed without one, or a negative errno.
  int wait(std::span<ibv_wc> out, const WaitPolicy& policy) noexcept;

  /// For a waiter that watches several queues: arm(), poll() once more, sleep on fd() becoming readable, then
  /// consume_event(). arm() and consume_event() return 0 or a positive errno; fd() is -1 without a channel.
  int arm() noexcept;
  int consume_event() noexcept;
  [[nodiscard]] int fd() const noexcept { return channel_ != nullptr ? channel_->fd : -1; }

  [[nodiscard]] ibv_cq* raw() const noexcept { return cq_; }
  [[nodiscard]] std::uint32_t depth() const noexcept { return static_cast<std::uint32_t>(cq_->cqe); }

 private:
  CompletionQueue(std::shared_ptr<Context> context, ibv_comp_channel* channel, ibv_cq* cq) noexcept;

  std::shared_ptr<Context> context_;
  ibv_comp_channel* channel_;
  ibv_cq* cq_;
  unsigned int unacknowledged_ = 0;  // events taken from the channel; acknowledged in batches
};

}  // namespace tensorwire::verbs
