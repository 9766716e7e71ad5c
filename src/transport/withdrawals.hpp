// What queue pairs have taken back: a count for each, which goes up when its work requests are flushed or forgotten,
// before anybody is told. A link whose peer reads a message where the sender has it, after the sender gave it away,
// names the count with the message; the peer looks at it after the bytes and knows whether they were still the
// message's. The link owns the counts, the engine counts (Engine::count_withdrawals()).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tensorwire::transport {

struct Withdrawals {
  /// Two queue pairs that share a count cost each other a repetition, no more.
  static constexpr std::size_t kCounts = 4096;

  std::array<std::atomic<std::uint64_t>, kCounts> counts{};

  [[nodiscard]] static constexpr std::size_t index_of(std::uint32_t qpn) noexcept { return qpn % kCounts; }
  [[nodiscard]] std::uint64_t of(std::uint32_t qpn) const noexcept {
    return counts[index_of(qpn)].load(std::memory_order_relaxed);
  }
  void count(std::uint32_t qpn) noexcept { counts[index_of(qpn)].fetch_add(1, std::memory_order_seq_cst); }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(std::atomic<std::uint64_t>) == 8,
              "another process reads the counts as plain words");

}  // namespace tensorwire::transport
