// Memory that the HCA may read and write. The same call serves host memory and GPU memory; what kind the pointer is
// decides how its pages are pinned (host pages by the kernel; CUDA pages by nvidia-peermem or as a DMA-BUF). A
// MemoryRegion owns the registration, never the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "verbs/protection_domain.hpp"

namespace tensorwire::verbs {

enum class MemoryKind : std::uint8_t {
  kHost,    ///< malloc, mmap, cudaHostAlloc
  kDmaBuf,  ///< pages behind a DMA-BUF file descriptor (CUDA's successor of nvidia-peermem)
};

/// Memory to be registered.
struct MemorySpan {
  void* address = nullptr;
  std::size_t length = 0;  ///< bytes; not zero
  MemoryKind kind = MemoryKind::kHost;
  int dmabuf_fd = -1;               ///< kDmaBuf: the exported buffer, which the caller keeps open while registering
  std::uint64_t dmabuf_offset = 0;  ///< kDmaBuf: where `address` lies in it, in bytes
};

/// What the peer and the HCA may do with a region; local reads are always allowed.
struct MemoryAccess {
  bool local_write = true;
  bool remote_write = false;
  bool remote_read = false;
};

class MemoryRegion {
 public:
  MemoryRegion() = default;
  MemoryRegion(std::shared_ptr<ProtectionDomain> domain, ibv_mr* mr) noexcept;
  ~MemoryRegion();
  MemoryRegion(MemoryRegion&& other) noexcept;
  MemoryRegion& operator=(MemoryRegion&& other) noexcept;

  [[nodiscard]] explicit operator bool() const noexcept { return mr_ != nullptr; }
  [[nodiscard]] std::uint32_t lkey() const noexcept { return mr_->lkey; }
  [[nodiscard]] std::uint32_t rkey() const noexcept { return mr_->rkey; }
  [[nodiscard]] std::uint64_t address() const noexcept { return reinterpret_cast<std::uint64_t>(mr_->addr); }
  [[nodiscard]] std::size_t length() const noexcept { return mr_->length; }

 private:
  std::shared_ptr<ProtectionDomain> domain_;
  ibv_mr* mr_ = nullptr;
};

/// Registers `memory` with the HCA of `domain`. The range need not be page-aligned; the HCA pins whole pages.
/// @throws Error with the size, the errno text, and its remedy: ENOMEM names the memlock limit, EFAULT unmapped memory,
/// EOPNOTSUPP a device without DMA-BUF.
[[nodiscard]] MemoryRegion register_gpu_memory_with_hca(const std::shared_ptr<ProtectionDomain>& domain,
                                                        const MemorySpan& memory, MemoryAccess access);

}  // namespace tensorwire::verbs
