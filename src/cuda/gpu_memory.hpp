// Memory of a GPU, or of the host beside it, that other GPUs and other processes can map (CUDA's virtual memory
// management). A GpuMemory owns one mapping; the memory itself lives as long as any mapping or descriptor of it,
// whoever made it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/unique_fd.hpp"

namespace tensorwire::cuda {

enum class Home : std::uint8_t {
  kGpu,
  kHost,  ///< the NUMA node of the GPU: every GPU of the host reaches it, across PCIe
};

class GpuMemory {
 public:
  GpuMemory() noexcept = default;
  /// New memory on `device` or beside it, zeroed, which all GPUs in `reached_by` (`device` among them) reach at the
  /// same address: within a process a second address for the same bytes would need fences of its own. `bytes` is
  /// rounded up.
  /// @throws Error
  [[nodiscard]] static GpuMemory allocate(std::size_t bytes, int device, Home home, std::span<const int> reached_by);
  /// The memory of another process, mapped in `device` as well.
  /// @throws Error when `device` cannot reach it
  [[nodiscard]] static GpuMemory of_fd(int fd, std::size_t bytes, int device);

  GpuMemory(GpuMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), handle_(std::exchange(other.handle_, 0)) {}
  GpuMemory& operator=(GpuMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~GpuMemory();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// As rounded up: what a peer must map.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Sets `bytes` bytes from `at` on; returns when that is done. @throws Error
  void fill(std::size_t at, std::size_t bytes, int value) const;
  /// @throws Error
  [[nodiscard]] UniqueFd descriptor() const;

 private:
  void map(std::span<const int> devices);

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint64_t handle_ = 0;
};

}  // namespace tensorwire::cuda
