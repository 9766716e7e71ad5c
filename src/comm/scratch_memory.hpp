// The memory that peers write into and that writes are sourced from: page-aligned, populated, zeroed; owned here.
#pragma once

#include <cstddef>
#include <span>

namespace tensorwire::comm {

class ScratchMemory {
 public:
  /// @throws Error naming the size when the system has not that much.
  explicit ScratchMemory(std::size_t bytes);
  ~ScratchMemory();
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace tensorwire::comm
