// Two buffers between canaries, all in one registered segment: what an operation may write and what it may not touch
// lie side by side, as tensors in an engine's memory pool do.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>

#include "base/error.hpp"
#include "tensorwire/tensorwire.h"

namespace tensorwire::comm {

class CanaryMemory {
 public:
  /// Each buffer has `bytes`.
  explicit CanaryMemory(std::size_t bytes) : bytes_(bytes) {
    if (twMemAlloc(&base_, 3 * kCanaryBytes + 2 * bytes_) != twSuccess)
      throw Error{"twMemAlloc", twGetLastError(nullptr)};
    for (int i = 0; i < 3; ++i) fill(canary(i), kAlive);
    clear();
  }
  ~CanaryMemory() { twMemFree(base_); }
  CanaryMemory(const CanaryMemory&) = delete;
  CanaryMemory& operator=(const CanaryMemory&) = delete;

  [[nodiscard]] void* segment() const noexcept { return base_; }
  [[nodiscard]] std::size_t segment_bytes() const noexcept { return 3 * kCanaryBytes + 2 * bytes_; }
  [[nodiscard]] std::span<std::byte> in() const noexcept { return {at(kCanaryBytes), bytes_}; }
  [[nodiscard]] std::span<std::byte> out() const noexcept { return {at(2 * kCanaryBytes + bytes_), bytes_}; }

  /// Of both buffers.
  void clear() noexcept {
    fill(in(), kUntouched);
    fill(out(), kUntouched);
  }

  /// Which canary is dead; "" for none.
  [[nodiscard]] std::string dead_canary() const {
    static constexpr const char* kPlaces[] = {"before the input", "between input and output", "after the output"};
    for (int i = 0; i < 3; ++i) {
      if (!all(canary(i), kAlive)) return std::string{"the canary "} + kPlaces[i] + " was overwritten";
    }
    return "";
  }
  [[nodiscard]] static bool untouched(std::span<const std::byte> bytes) noexcept { return all(bytes, kUntouched); }

 private:
  static constexpr std::size_t kCanaryBytes = 4096 + 64;  // buffers do not begin at pages
  static constexpr std::byte kAlive{0xc5};
  static constexpr std::byte kUntouched{0x77};

  // By the C library: what looks at megabytes byte by byte takes seconds under a sanitizer.
  static void fill(std::span<std::byte> bytes, std::byte value) noexcept {
    std::memset(bytes.data(), std::to_integer<int>(value), bytes.size());
  }
  static bool all(std::span<const std::byte> bytes, std::byte value) noexcept {
    return bytes.empty() ||
           (bytes.front() == value && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
  }
  [[nodiscard]] std::byte* at(std::size_t offset) const noexcept { return static_cast<std::byte*>(base_) + offset; }
  [[nodiscard]] std::span<std::byte> canary(int index) const noexcept {
    const auto i = static_cast<std::size_t>(index);
    return {at(i * (kCanaryBytes + bytes_)), kCanaryBytes};
  }

  std::size_t bytes_;
  void* base_ = nullptr;
};

}  // namespace tensorwire::comm
