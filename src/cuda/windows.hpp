// The memory through which a relay and its host pass tensors: of the GPU, or of the host as mapped there.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "cuda/pinned_memory.hpp"

namespace tensorwire::cuda {

/// Owns it.
class Windows {
 public:
  /// On the current GPU. @throws Error
  Windows(bool on_gpu, std::size_t bytes);
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  /// As the host names them.
  [[nodiscard]] std::byte* data() const noexcept { return host_ ? host_->host() : gpu_; }
  [[nodiscard]] std::byte* on_gpu() const noexcept { return host_ ? host_->on_gpu() : gpu_; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data(), bytes_}; }

 private:
  std::size_t bytes_;
  std::optional<PinnedMemory> host_;
  std::byte* gpu_ = nullptr;
};

}  // namespace tensorwire::cuda
