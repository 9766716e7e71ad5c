// A completion queue as the Hca holds it: the engine's ring, the lock of its consumers, and the wake-up of whoever
// waits for its next completion.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "softhca/hca.hpp"

namespace tensorwire::softhca {

class HcaImpl;

class CqImpl final : public Cq, private transport::CompletionListener {
 public:
  CqImpl(HcaImpl& hca, std::uint32_t capacity, CqCallback callback);
  /// Returns when no callback of this queue runs or will run. No queue pair uses it any more (the caller's duty, as
  /// with ibv_destroy_cq). Not to be called from the callback.
  ~CqImpl() override;

  std::size_t poll(std::span<transport::Completion> out) noexcept override;
  void arm(bool solicited_only) noexcept override;
  [[nodiscard]] std::uint32_t capacity() const noexcept override { return ring_.capacity(); }
  [[nodiscard]] bool overrun() const noexcept override { return ring_.overrun(); }

  [[nodiscard]] transport::CompletionQueue& ring() noexcept { return ring_; }
  [[nodiscard]] std::mutex& consumer_mutex() noexcept { return consumer_mutex_; }

  // For the shard: a completion event waits to be told (lock held); it is told (lock not held).
  bool noticed = false;
  void begin_callback() noexcept { callbacks_running_.fetch_add(1, std::memory_order_relaxed); }
  void run_callback() noexcept;

 private:
  void on_completion_event(transport::CompletionQueue& ring) noexcept override;
  void on_overrun(transport::CompletionQueue& ring) noexcept override;
  std::size_t take(std::span<transport::Completion> out) noexcept;

  HcaImpl& hca_;
  CqCallback callback_;
  std::mutex consumer_mutex_;
  transport::CompletionQueue ring_;
  std::atomic<std::uint32_t> callbacks_running_{0};
  std::atomic<std::uint32_t> empty_polls_{0};  ///< in a row
};

}  // namespace tensorwire::softhca
