// A ring of posted receive buffers (scatter lists), allocated at creation: what a receive queue and a shared receive
// queue are made of (late: allocated at the first post). One thread posts; the engine consumes, under its owner's lock.
// Ownership of an entry moves as in send_queue.hpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/types.hpp"

namespace tensorwire::transport {

struct RecvWqe {
  std::uint64_t wr_id;
  std::uint64_t length;  ///< bytes that the scatter list can hold
  std::uint8_t sge_count;
};

class ReceiveRing {
 public:
  ReceiveRing(std::uint32_t max_wr, std::uint32_t max_sge, bool late = false);

  // ---- the posting thread
  /// Returns 0, EINVAL (too many SGEs) or ENOMEM (full).
  int post(const RecvWr& wr) noexcept;

  // ---- the engine
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  [[nodiscard]] std::uint32_t size() const noexcept { return posted_.load(std::memory_order_acquire) - head(); }
  /// The oldest entry; only when not empty.
  [[nodiscard]] const RecvWqe& front() const noexcept { return entries_[head() & mask_]; }
  [[nodiscard]] std::span<const Sge> front_sges() const noexcept;
  void pop() noexcept { freed_.store(head() + 1, std::memory_order_release); }
  void clear() noexcept { freed_.store(posted_.load(std::memory_order_acquire), std::memory_order_release); }

 private:
  void allocate();
  [[nodiscard]] std::uint32_t head() const noexcept { return freed_.load(std::memory_order_relaxed); }

  std::uint32_t capacity_;
  std::uint32_t mask_;
  std::uint32_t max_sge_;
  std::vector<RecvWqe> entries_;
  std::vector<Sge> sges_;
  alignas(64) std::atomic<std::uint32_t> posted_{0};
  alignas(64) std::atomic<std::uint32_t> freed_{0};
};

}  // namespace tensorwire::transport
