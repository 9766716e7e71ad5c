// A number that one thread counts and any thread may read: neither a lock nor a locked instruction, and never half a
// value. What a reader sees may be a moment old.
#pragma once

#include <atomic>
#include <cstdint>

namespace tensorwire::comm {

class Tally {
 public:
  Tally() = default;
  Tally(const Tally& other) noexcept : value_(other.get()) {}
  Tally& operator=(const Tally& other) noexcept {
    set(other.get());
    return *this;
  }

  /// By the one thread that counts.
  void add(std::uint64_t amount) noexcept { set(get() + amount); }
  void raise_to(std::uint64_t value) noexcept {
    if (value > get()) set(value);
  }
  void set(std::uint64_t value) noexcept { value_.store(value, std::memory_order_relaxed); }

  [[nodiscard]] std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_ = 0;
};

}  // namespace tensorwire::comm
