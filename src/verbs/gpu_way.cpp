#include "verbs/gpu_way.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>

#include "base/error.hpp"
#include "base/units.hpp"

namespace tensorwire::verbs {

namespace {

constexpr int kOrderedForOwner = 100;        // CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER
constexpr unsigned kHostMayFlush = 1U << 0;  // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST

bool is_geforce(const GpuFacts& facts) { return facts.model.find("GeForce") != std::string::npos; }

/// "5.15.0-105-generic" is at least 5.12; what cannot be read is taken to be.
bool kernel_has_dmabuf(const std::string& kernel) {
  int major = 0, minor = 0;
  const char* const end = kernel.data() + kernel.size();
  const auto [dot, major_error] = std::from_chars(kernel.data(), end, major);
  if (major_error != std::errc{} || dot == end) return true;
  if (std::from_chars(dot + 1, end, minor).ec != std::errc{}) return true;
  return major > 5 || (major == 5 && minor >= 12);
}

/// What closes both ways.
std::optional<Explanation> closed_altogether(const GpuFacts& facts) {
  if (is_geforce(facts)) {
    return Explanation{facts.model + " has no GPUDirect RDMA: GeForce cards are without it",
                       "Use a data-centre or workstation GPU, or host memory"};
  }
  if (facts.rdma_supported == false) {
    return Explanation{"the driver says that " + facts.model + " has no GPUDirect RDMA",
                       "Use host memory; on GB10 and other integrated GPUs that is the platform's way"};
  }
  return std::nullopt;
}

bool beyond_bar1(const GpuFacts& facts, std::uint64_t bytes) { return facts.bar1_bytes && bytes > *facts.bar1_bytes; }

Explanation small_bar1(const GpuFacts& facts, std::uint64_t bytes) {
  return {
      fmt::format("{} do not fit the GPU's BAR1, which has {}", format_bytes(bytes), format_bytes(*facts.bar1_bytes)),
      "Register less, or turn on \"Above 4G decoding\" and resizable BARs in the BIOS"};
}

Explanation explain_dmabuf(const Refusal& refusal, const GpuFacts& facts, std::uint64_t bytes) {
  if (facts.open_kernel_modules == false) {
    return {"the NVIDIA driver's closed kernel modules export no DMA-BUF", "Install the open ones (nvidia-open)"};
  }
  if (!kernel_has_dmabuf(facts.kernel)) {
    return {fmt::format("kernel {} registers no DMA-BUF", facts.kernel), "Use Linux 5.12 or newer"};
  }
  if (facts.dmabuf_supported == false) {
    return {"the CUDA driver says that this GPU exports no DMA-BUF",
            "Use a driver of 515 or newer with its open kernel modules"};
  }
  if (!refusal.cuda.empty()) {
    return {"CUDA exports no DMA-BUF of this range: " + refusal.cuda,
            "Memory of cuMemCreate must be made with gpuDirectRDMACapable"};
  }
  switch (refusal.errno_value) {
    case EOPNOTSUPP:
    case EPROTONOSUPPORT:
    case ENOSYS:
      return {"the device's driver takes no DMA-BUF: " + errno_text(refusal.errno_value),
              "Use a kernel of 5.12 or newer, or a newer MLNX_OFED, and a libibverbs of rdma-core 34 or newer"};
    case ENOMEM:
      if (beyond_bar1(facts, bytes)) return small_bar1(facts, bytes);
      return {errno_text(ENOMEM), "Raise the memlock limit (ulimit -l unlimited), or register less"};
    default:
      return {"the device refuses the DMA-BUF: " + errno_text(refusal.errno_value), "The kernel's log may say more"};
  }
}

Explanation explain_peer_memory(const Refusal& refusal, const GpuFacts& facts, std::uint64_t bytes) {
  if (!facts.peermem_loaded) return {"the module nvidia-peermem is not loaded", "modprobe nvidia-peermem"};
  switch (refusal.errno_value) {
    case EINVAL:
      return {"the kernel's ib_core has no peer memory interface, without which nvidia-peermem does nothing (EINVAL)",
              "Install MLNX_OFED before the GPU driver, or use DMA-BUF"};
    case EFAULT:
      return {"the kernel does not know the address as memory of a GPU (EFAULT)",
              "Load nvidia-peermem after MLNX_OFED (modprobe -r nvidia-peermem; modprobe nvidia-peermem)"};
    case ENOMEM:
      if (beyond_bar1(facts, bytes)) return small_bar1(facts, bytes);
      return {"there is no room left in the GPU's BAR1, or under the memlock limit (ENOMEM)",
              "Register less (nvidia-smi -q -d MEMORY shows BAR1), or ulimit -l unlimited"};
    default:
      return {errno_text(refusal.errno_value), "The kernel's log may say more"};
  }
}

}  // namespace

std::string_view name(RegistrationPath path) noexcept {
  switch (path) {
    case RegistrationPath::kDmaBuf:
      return "DMA-BUF";
    case RegistrationPath::kPeerMemory:
      return "nvidia-peermem";
    default:
      return "host pages";
  }
}

Explanation explain(const Refusal& refusal, const GpuFacts& facts, std::uint64_t bytes) {
  if (const auto closed = closed_altogether(facts)) return *closed;
  return refusal.path == RegistrationPath::kDmaBuf ? explain_dmabuf(refusal, facts, bytes)
                                                   : explain_peer_memory(refusal, facts, bytes);
}

Explanation explain(const Refusal& dmabuf, const Refusal& peer_memory, const GpuFacts& facts, std::uint64_t bytes) {
  if (const auto closed = closed_altogether(facts)) return *closed;
  const Explanation first = explain_dmabuf(dmabuf, facts, bytes);
  const Explanation second = explain_peer_memory(peer_memory, facts, bytes);
  if (first.why == second.why) return first;
  return {fmt::format("by DMA-BUF: {}; by nvidia-peermem: {}", first.why, second.why),
          fmt::format("{}; or: {}", first.remedy, second.remedy)};
}

FlushRule flush_rule(const GpuFacts& facts, bool soft, bool pcie_mapped) {
  const std::string gpu = fmt::format("GPU {}: ", facts.ordinal);
  if (soft) {
    return {Flush::kNone, gpu + "no flush after arrivals: the soft HCA completes nothing before it is in GPU memory"};
  }
  const int ordering = facts.writes_ordering.value_or(0);
  if (ordering >= kOrderedForOwner && !pcie_mapped) {
    return {
        Flush::kNone,
        fmt::format("{}no flush after arrivals: its kernels see writes of NICs in order (ordering {})", gpu, ordering)};
  }
  const std::string why = pcie_mapped ? std::string{"the region is mapped through PCIe beside the usual way"}
                                      : fmt::format("writes of NICs are not ordered (ordering {})", ordering);
  if (!pcie_mapped && (facts.flush_options.value_or(0) & kHostMayFlush) != 0) {
    return {Flush::kDriver, fmt::format("{}arrivals are flushed by cuFlushGPUDirectRDMAWrites: {}", gpu, why)};
  }
  return {Flush::kLoopbackRead, fmt::format("{}arrivals are flushed by a loopback READ: {}", gpu, why)};
}

}  // namespace tensorwire::verbs
