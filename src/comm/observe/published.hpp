// A value that one thread stores, and any thread reads: whole, or not at all. The writer never waits.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

namespace tensorwire::comm {

template <class Value>
class Published {
  static_assert(std::is_trivially_copyable_v<Value>);

 public:
  void store(const Value& value) noexcept {
    std::array<std::uint64_t, kWords> words{};
    std::memcpy(words.data(), &value, sizeof value);
    const std::uint64_t turn = turn_.load(std::memory_order_relaxed);
    turn_.store(turn + 1, std::memory_order_relaxed);  // odd: in the making
    // Whoever sees one of these words sees the odd turn, too. (No fences: ThreadSanitizer knows none.)
    for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    turn_.store(turn + 2, std::memory_order_release);
  }

  /// Nothing: it is being stored just now, or never was.
  [[nodiscard]] std::optional<Value> load() const noexcept {
    const std::uint64_t turn = turn_.load(std::memory_order_acquire);
    if (turn == 0 || turn % 2 != 0) return std::nullopt;
    std::array<std::uint64_t, kWords> words{};
    for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
    if (turn_.load(std::memory_order_relaxed) != turn) return std::nullopt;
    Value value;
    std::memcpy(static_cast<void*>(&value), words.data(), sizeof value);
    return value;
  }

 private:
  static constexpr std::size_t kWords = (sizeof(Value) + 7) / 8;
  std::atomic<std::uint64_t> turn_ = 0;
  std::array<std::atomic<std::uint64_t>, kWords> words_{};
};

}  // namespace tensorwire::comm
