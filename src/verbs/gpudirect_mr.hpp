// Memory that the HCA may read and write. The same call serves host memory and GPU memory; what kind the pointer is
// decides how its pages are pinned: host pages by the kernel, CUDA's as a DMA-BUF, or else by nvidia-peermem. A
// MemoryRegion owns the registration, and the memory only where it was asked to allocate it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "verbs/gpu_way.hpp"
#include "verbs/protection_domain.hpp"

namespace tensorwire::verbs {

enum class MemoryKind : std::uint8_t {
  kAny,     ///< malloc, mmap, cudaHostAlloc; cudaMalloc, cuMemMap: looked up by the address
  kDmaBuf,  ///< pages behind a DMA-BUF file descriptor that the caller has
  kNewGpu,  ///< allocated here on GPU `gpu`; `address` is left null
};

/// Memory to be registered.
struct MemorySpan {
  void* address = nullptr;
  std::size_t length = 0;  ///< bytes; not zero
  MemoryKind kind = MemoryKind::kAny;
  int dmabuf_fd = -1;               ///< kDmaBuf: the exported buffer, which the caller keeps open while registering
  std::uint64_t dmabuf_offset = 0;  ///< kDmaBuf: where `address` lies in it, in bytes
  int gpu = 0;                      ///< kNewGpu: as this process counts
};

/// What the peer and the HCA may do with a region; local reads are always allowed.
struct MemoryAccess {
  bool local_write = true;
  bool remote_write = false;
  bool remote_read = false;
};

class MemoryRegion {
 public:
  /// Memory of a GPU, as it was when it was registered.
  struct Gpu {
    RegistrationPath path = RegistrationPath::kHostPages;
    int ordinal = 0;
    std::uint64_t buffer_id = 0;
    Flush flush = Flush::kNone;
  };

  MemoryRegion() = default;
  MemoryRegion(std::shared_ptr<ProtectionDomain> domain, ibv_mr* mr, const MemorySpan& memory, const Gpu& gpu) noexcept;
  ~MemoryRegion();
  MemoryRegion(MemoryRegion&& other) noexcept;
  MemoryRegion& operator=(MemoryRegion&& other) noexcept;

  [[nodiscard]] explicit operator bool() const noexcept { return mr_ != nullptr; }
  [[nodiscard]] std::uint32_t lkey() const noexcept { return mr_->lkey; }
  [[nodiscard]] std::uint32_t rkey() const noexcept { return mr_->rkey; }
  [[nodiscard]] std::uint64_t address() const noexcept { return address_; }
  [[nodiscard]] std::size_t length() const noexcept { return length_; }

  /// How its pages are reached.
  [[nodiscard]] RegistrationPath path() const noexcept { return gpu_.path; }
  /// What is owed between an arrival's completion and its use by a kernel.
  [[nodiscard]] Flush flush() const noexcept { return gpu_.flush; }
  /// Flush::kDriver: returns when kernels of the GPU see what has completed. Not inside a capture. @throws Error when
  /// CUDA refuses.
  void flush_by_driver() const;
  /// CUDA tells nobody that memory was freed. False: what lies there now is not what was registered, and the region is
  /// of no use. Host memory is always valid. One look at the driver: before each use of a region that was kept.
  [[nodiscard]] bool still_valid() const noexcept;

 private:
  std::shared_ptr<ProtectionDomain> domain_;
  ibv_mr* mr_ = nullptr;
  std::uint64_t address_ = 0;
  std::size_t length_ = 0;
  Gpu gpu_;
  bool owns_memory_ = false;
};

/// Registers `memory` with the HCA of `domain`. The range need not be page-aligned; the HCA pins whole pages.
/// @throws Error with the size, the cause and its remedy. Of host memory: ENOMEM names the memlock limit, EFAULT
/// unmapped memory. Of a GPU: what closes each of the two ways (gpu_way.hpp), managed memory, memory of a
/// stream-ordered pool.
[[nodiscard]] MemoryRegion register_gpu_memory_with_hca(const std::shared_ptr<ProtectionDomain>& domain,
                                                        const MemorySpan& memory, MemoryAccess access);

}  // namespace tensorwire::verbs
