// Host memory that does not move, mapped in the current GPU. A PinnedMemory owns it; it is zeroed.
#pragma once

#include <cstddef>
#include <span>

namespace tensorwire::cuda {

class PinnedMemory {
 public:
  /// @throws Error
  explicit PinnedMemory(std::size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  [[nodiscard]] std::byte* host() const noexcept { return host_; }
  [[nodiscard]] std::byte* on_gpu() const noexcept { return on_gpu_; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {host_, bytes_}; }

 private:
  std::size_t bytes_;
  std::byte* host_ = nullptr;
  std::byte* on_gpu_ = nullptr;
};

}  // namespace tensorwire::cuda
