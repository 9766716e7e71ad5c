// GPUs of this host and memory of theirs, through CUDA's driver (base/cuda_driver.hpp), which is loaded when this is
// used: a host without it has no GPU, and the reason is said. For the parts of a first contact that run as processes of
// their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cuda_driver.hpp"

namespace tensorwire::cli {

class Gpu {
 public:
  /// How many there are. 0: none, and `why` says so.
  [[nodiscard]] static int count(std::string& why);

  /// Makes it the one that this thread's calls go to. @throws Error
  explicit Gpu(int ordinal);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const CudaDriver& driver() const noexcept { return driver_; }

 private:
  const CudaDriver& driver_;
  int device_ = 0;
  std::string name_;
};

class GpuBuffer {
 public:
  /// @throws Error
  GpuBuffer(const Gpu& gpu, std::size_t bytes);
  ~GpuBuffer();
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;

  [[nodiscard]] void* address() const noexcept { return reinterpret_cast<void*>(address_); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// The same 16 bits everywhere; returns when they are there. @throws Error
  void fill(std::uint16_t value) const;
  void copy_to(std::span<std::byte> host) const;

 private:
  const Gpu& gpu_;
  std::uint64_t address_ = 0;
  std::size_t bytes_;
};

/// A stream of the GPU that this thread works on.
class GpuStream {
 public:
  explicit GpuStream(const Gpu& gpu);
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  [[nodiscard]] void* raw() const noexcept { return stream_; }
  void wait() const;

 private:
  const Gpu& gpu_;
  void* stream_ = nullptr;
};

}  // namespace tensorwire::cli
