// A completion queue: a ring with one producer (the engine, under its owner's lock) and one consumer at a time (poll,
// under the consumer's own lock), which may run concurrently. Capacity is fixed at creation; a push to a full ring is
// an overrun, which the specification makes fatal for the CQ.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/types.hpp"

namespace tensorwire::transport {

class CompletionQueue;

/// Told, inside an engine call, that an armed queue has its completion; must not call back into the engine.
class CompletionListener {
 public:
  virtual ~CompletionListener() = default;
  virtual void on_completion_event(CompletionQueue& cq) noexcept = 0;
  /// The queue was full, and a completion is lost; told once.
  virtual void on_overrun(CompletionQueue& /*cq*/) noexcept {}
};

class CompletionQueue {
 public:
  CompletionQueue(std::uint32_t capacity, CompletionListener* listener);

  /// Consumer: moves up to out.size() completions into `out`, oldest first; returns how many.
  std::size_t poll(std::span<Completion> out) noexcept;
  /// Consumer: the next completion (any, or only a solicited or failed one) tells the listener, once.
  void arm(bool solicited_only) noexcept;
  [[nodiscard]] std::size_t size() const noexcept;
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] bool overrun() const noexcept { return overrun_.load(std::memory_order_relaxed); }

  /// Producer. False when the queue is full: the completion is lost, and whose it was can no longer be relied upon.
  bool push(const Completion& completion, bool solicited) noexcept;
  /// Producer side, owner's lock held and consumer excluded: drops the completions of a destroyed queue pair.
  void purge(std::uint32_t qp_num) noexcept;

 private:
  enum Armed : std::uint8_t { kNotArmed, kArmedSolicited, kArmedAny };

  std::uint32_t capacity_;
  std::uint32_t mask_;
  std::vector<Completion> ring_;
  CompletionListener* listener_;
  alignas(64) std::atomic<std::uint32_t> head_{0};  ///< consumer
  alignas(64) std::atomic<std::uint32_t> tail_{0};  ///< producer
  std::atomic<std::uint8_t> armed_{kNotArmed};
  std::atomic<bool> overrun_{false};
};

}  // namespace tensorwire::transport
