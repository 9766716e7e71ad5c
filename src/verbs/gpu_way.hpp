// On which way a NIC reaches memory of a GPU, why a way is closed, and what is owed after a write: pure functions of
// what is known of GPU, driver, kernel and device. Reading that is gpu_facts.cpp's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tensorwire::verbs {

/// What was read. Empty: it could not be.
struct GpuFacts {
  int ordinal = 0;                          ///< as this process counts
  std::string model;                        ///< "NVIDIA H200"
  std::string kernel;                       ///< "6.1.0-18-amd64"
  std::optional<bool> open_kernel_modules;  ///< of the NVIDIA driver
  std::optional<bool> rdma_supported;       ///< GPUDirect RDMA, as the driver says
  std::optional<bool> dmabuf_supported;     ///< DMA-BUF export, as the driver says
  std::optional<int> writes_ordering;       ///< CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING
  std::optional<unsigned> flush_options;    ///< ..._FLUSH_WRITES_OPTIONS
  bool peermem_loaded = false;              ///< nvidia-peermem, or its forerunner
  std::optional<std::uint64_t> bar1_bytes;  ///< the window through which others see its memory
};

enum class RegistrationPath : std::uint8_t {
  kHostPages,   ///< memory of the host, pinned by the kernel
  kDmaBuf,      ///< the GPU's pages by a DMA-BUF
  kPeerMemory,  ///< the GPU's pages by nvidia-peermem, or, on the soft HCA, by their address
};
[[nodiscard]] std::string_view name(RegistrationPath path) noexcept;

/// One way that was tried. `errno_value` is the provider's; else `step` did not get so far, and `cuda` is CUDA's error.
struct Refusal {
  RegistrationPath path = RegistrationPath::kDmaBuf;
  int errno_value = 0;
  std::string cuda;
};

/// Why, and what to do, in one line each.
struct Explanation {
  std::string why;
  std::string remedy;
};
[[nodiscard]] Explanation explain(const Refusal& refusal, const GpuFacts& facts, std::uint64_t bytes);
/// Both ways together.
[[nodiscard]] Explanation explain(const Refusal& dmabuf, const Refusal& peer_memory, const GpuFacts& facts,
                                  std::uint64_t bytes);

/// What is owed between the completion of a write into the GPU's memory and its use by a kernel.
enum class Flush : std::uint8_t {
  kNone,
  kDriver,        ///< cuFlushGPUDirectRDMAWrites
  kLoopbackRead,  ///< an RDMA READ of a byte of the region, by a queue pair connected to its own HCA
};
struct FlushRule {
  Flush flush = Flush::kNone;
  std::string line;  ///< which, and why
};
/// @param soft the HCA is the soft one, which completes nothing before it is in GPU memory
/// @param pcie_mapped the region is seen through PCIe by a way of its own (Data Direct), whose order CUDA does not know
[[nodiscard]] FlushRule flush_rule(const GpuFacts& facts, bool soft, bool pcie_mapped);

}  // namespace tensorwire::verbs
