// The memory of a simulated host, twice: the bytes that engines may reach, and the bytes that the reference model says
// they should hold. Zones are handed out with guard bytes around them. Reused from seed to seed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "transport/plain_memory.hpp"
#include "violation.hpp"

namespace tensorwire::transport::faults {

class Arena {
 public:
  static constexpr std::size_t kGuard = 64;

  void reset() noexcept { used_ = 0; }

  /// The address of `size` fresh bytes.
  std::uint64_t take(std::size_t size) {
    used_ = (used_ + 7) & ~std::size_t{7};
    const std::size_t begin = used_ + kGuard;
    require(begin + size + kGuard <= kBytes, "the simulator's arena is large enough");
    std::memset(real_.data() + used_, kUntouched, size + 2 * kGuard);
    std::memset(model_.data() + used_, kUntouched, size + 2 * kGuard);
    used_ = begin + size + kGuard;
    return reinterpret_cast<std::uintptr_t>(real_.data() + begin);
  }

  [[nodiscard]] std::byte* at(std::uint64_t address) noexcept { return real_.data() + offset(address); }

  /// The model writes what the engine was told to write.
  void expect(std::uint64_t address, std::span<const std::byte> bytes) {
    require(address >= base() && bytes.size() <= used_ && offset(address) + bytes.size() <= used_,
            "a write lies inside the host's memory");
    std::copy(bytes.begin(), bytes.end(), model_.begin() + static_cast<std::ptrdiff_t>(offset(address)));
  }
  /// The bytes around [address, address + length) are what the model says.
  [[nodiscard]] bool intact(std::uint64_t address, std::size_t length) const noexcept {
    const std::size_t begin = offset(address) - kGuard;
    const std::size_t end = std::min(offset(address) + length + kGuard, used_);
    return std::memcmp(real_.data() + begin, model_.data() + begin, end - begin) == 0;
  }
  [[nodiscard]] bool holds(std::uint64_t address, std::size_t length) const noexcept {
    return address >= base() + kGuard && offset(address) + length + kGuard <= used_;
  }
  /// A word as the model has it.
  [[nodiscard]] std::uint64_t expected_word(std::uint64_t address) const noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, model_.data() + offset(address), sizeof word);
    return word;
  }
  [[nodiscard]] bool intact() const noexcept { return std::memcmp(real_.data(), model_.data(), used_) == 0; }

 private:
  static constexpr std::size_t kBytes = std::size_t{4} << 20;
  static constexpr int kUntouched = 0xa5;

  [[nodiscard]] std::uint64_t base() const noexcept { return reinterpret_cast<std::uintptr_t>(real_.data()); }
  [[nodiscard]] std::size_t offset(std::uint64_t address) const noexcept { return address - base(); }

  std::vector<std::byte> real_ = std::vector<std::byte>(kBytes);
  std::vector<std::byte> model_ = std::vector<std::byte>(kBytes);
  std::size_t used_ = 0;
};

/// Host memory that can vanish for the next accesses, as if it had been unmapped.
class FaultyMemory final : public MemoryOps {
 public:
  bool load(std::uint64_t address, std::span<std::byte> to, std::uint32_t* crc) noexcept override {
    return !spend(failing_loads) && plain_.load(address, to, crc);
  }
  bool store(std::uint64_t address, std::span<const std::byte> from, std::uint32_t* crc) noexcept override {
    return !spend(failing_stores) && plain_.store(address, from, crc);
  }
  bool atomic(std::uint64_t address, const AtomicOperation& operation, std::uint64_t& original) noexcept override {
    return !spend(failing_stores) && plain_.atomic(address, operation, original);
  }

  std::uint32_t failing_loads = 0;
  std::uint32_t failing_stores = 0;

 private:
  static bool spend(std::uint32_t& count) noexcept { return count != 0 && count-- != 0; }

  PlainMemory plain_;
};

}  // namespace tensorwire::transport::faults
