#include "verbs/gpudirect_mr.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/cuda_driver.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/unique_fd.hpp"
#include "base/units.hpp"
#include "verbs/gpu_facts.hpp"

namespace tensorwire::verbs {

namespace {

constexpr int kDmaBufHandle = 1;  // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
constexpr int kToOwner = 100;     // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER

int access_flags(MemoryAccess access) noexcept {
  int flags = 0;
  if (access.local_write) flags |= IBV_ACCESS_LOCAL_WRITE;
  if (access.remote_write) flags |= IBV_ACCESS_REMOTE_WRITE;
  if (access.remote_read) flags |= IBV_ACCESS_REMOTE_READ;
  return flags;
}

std::string describe(const ProtectionDomain& domain, const MemorySpan& memory, const std::string& kind) {
  return fmt::format("register {} of {} memory at {} with {}", format_bytes(memory.length), kind, memory.address,
                     domain.context()->name());
}

std::string remedy_for(int errno_value, MemoryKind kind) {
  switch (errno_value) {
    case ENOMEM:
      return "Raise the memlock limit (ulimit -l unlimited; in a container --ulimit memlock=-1)";
    case EFAULT:
      return kind == MemoryKind::kDmaBuf ? "The DMA-BUF is shorter than the range"
                                         : "The range is not mapped, or is read-only while local_write was asked for";
    case EOPNOTSUPP:
      return "The device or kernel has no DMA-BUF registration";
    case EINVAL:
      return "Remote writes need local write access, and the range must not wrap";
    default:
      return {};
  }
}

ibv_mr* register_dmabuf(const ProtectionDomain& domain, const MemorySpan& memory, int fd, std::uint64_t offset,
                        int flags) {
  const Functions& call = domain.context()->call();
  errno = EOPNOTSUPP;
  if (call.reg_dmabuf_mr == nullptr) return nullptr;
  return call.reg_dmabuf_mr(domain.raw(), offset, memory.length, reinterpret_cast<std::uint64_t>(memory.address), fd,
                            flags);
}

// ---- memory of a GPU

/// CUDA exports whole pages of the host's size. The descriptor is needed while registering and no longer: the region
/// keeps the pages.
ibv_mr* try_dmabuf(const ProtectionDomain& domain, const CudaDriver& driver, const MemorySpan& memory, int flags,
                   Refusal& refusal) {
  refusal.path = RegistrationPath::kDmaBuf;
  if (driver.export_range == nullptr) {
    refusal.cuda = "the driver has no cuMemGetHandleForAddressRange";
    return nullptr;
  }
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uint64_t>(memory.address);
  const std::uint64_t start = address / page * page;
  const std::uint64_t end = (address + memory.length + page - 1) / page * page;
  int handle = -1;
  if (const auto result = driver.export_range(&handle, start, end - start, kDmaBufHandle, 0); result != 0) {
    refusal.cuda = driver.error_text(result);
    return nullptr;
  }
  const UniqueFd fd{handle};
  ibv_mr* const mr = register_dmabuf(domain, memory, fd.get(), address - start, flags);
  if (mr == nullptr) refusal.errno_value = errno;
  return mr;
}

ibv_mr* try_peer_memory(const ProtectionDomain& domain, const MemorySpan& memory, int flags, Refusal& refusal) {
  refusal.path = RegistrationPath::kPeerMemory;
  errno = 0;
  ibv_mr* const mr = domain.context()->call().reg_mr(domain.raw(), memory.address, memory.length, flags);
  if (mr == nullptr) refusal.errno_value = errno;
  return mr;
}

/// Once for each GPU and way.
void say(const ProtectionDomain& domain, const MemoryRegion::Gpu& gpu, const FlushRule& rule) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::string line =
      fmt::format("{} reaches GPU {} by {}; {}", domain.context()->name(), gpu.ordinal, name(gpu.path), rule.line);
  const std::lock_guard guard{mutex};
  if (said.insert(line).second) log_info(line);
}

MemoryRegion register_gpu(const std::shared_ptr<ProtectionDomain>& domain, const CudaDriver& driver,
                          const CudaPointer& pointer, const MemorySpan& memory, int flags) {
  const std::string what = describe(*domain, memory, fmt::format("GPU {}", pointer.device));
  if (pointer.kind == CudaPointer::Kind::kManaged) {
    throw Error{what, "it is managed memory, which wanders between host and GPU", "Use cudaMalloc, or cudaHostAlloc"};
  }
  if (pointer.from_pool) {
    throw Error{what, "it is of a stream-ordered pool (cudaMallocAsync), which no HCA can pin",
                "Use cudaMalloc, or cuMemCreate with gpuDirectRDMACapable"};
  }
  const bool soft = domain->context()->is_soft();
  const GpuFacts facts = read_gpu_facts(driver, pointer.device);
  MemoryRegion::Gpu gpu{.path = RegistrationPath::kDmaBuf, .ordinal = pointer.device, .buffer_id = pointer.buffer_id};
  Refusal dmabuf, peer_memory;
  ibv_mr* mr = try_dmabuf(*domain, driver, memory, flags, dmabuf);
  if (mr == nullptr) {
    gpu.path = RegistrationPath::kPeerMemory;
    mr = try_peer_memory(*domain, memory, flags, peer_memory);
  }
  if (mr == nullptr) {
    if (soft) throw system_error(what, peer_memory.errno_value, "The warning before this line says more");
    const Explanation said = explain(dmabuf, peer_memory, facts, memory.length);
    throw Error{what, said.why, said.remedy};
  }
  const FlushRule rule = flush_rule(facts, soft, false);
  gpu.flush = rule.flush;
  say(*domain, gpu, rule);
  return MemoryRegion{domain, mr, memory, gpu};
}

/// The one that cudaMalloc allocates in. Null when CUDA refuses; calls that need it then fail.
void* primary_context(const CudaDriver& driver, int ordinal) noexcept {
  int device = 0;
  void* context = nullptr;
  if (driver.device_get(&device, ordinal) != 0 || driver.primary_retain(&context, device) != 0) return nullptr;
  return context;
}

void allocate(const CudaDriver& driver, MemorySpan& memory) {
  const std::string what = fmt::format("allocate {} on GPU {}", format_bytes(memory.length), memory.gpu);
  const CudaSection section{driver, primary_context(driver, memory.gpu)};
  if (!section) throw Error{what, "there is no such GPU, or the process is ending"};
  CudaDriver::Address address = 0;
  if (const auto result = driver.memory_alloc(&address, memory.length); result != 0) {
    throw Error{what, driver.error_text(result), "nvidia-smi shows what is free"};
  }
  memory.address = reinterpret_cast<void*>(address);
}

void free_allocated(int gpu, std::uint64_t address) noexcept {
  const CudaDriver* const driver = cuda_driver_in_process();
  if (driver == nullptr) return;
  const CudaSection section{*driver, primary_context(*driver, gpu)};
  if (section) driver->memory_free(address);
}

MemoryRegion register_new_gpu(const std::shared_ptr<ProtectionDomain>& domain, MemorySpan memory, int flags) {
  const CudaDriver* const driver = load_cuda_driver();
  if (driver == nullptr) {
    throw Error{fmt::format("allocate {} on GPU {}", format_bytes(memory.length), memory.gpu),
                "there is no CUDA driver (libcuda.so.1)", "Install the NVIDIA driver, or use host memory"};
  }
  allocate(*driver, memory);
  const auto address = reinterpret_cast<std::uint64_t>(memory.address);
  try {
    const std::optional<CudaPointer> pointer = cuda_pointer(address);
    if (!pointer) throw Error{describe(*domain, memory, "GPU"), "CUDA does not know what it has just allocated"};
    return register_gpu(domain, *driver, *pointer, memory, flags);
  } catch (...) {
    free_allocated(memory.gpu, address);
    throw;
  }
}

}  // namespace

MemoryRegion::MemoryRegion(std::shared_ptr<ProtectionDomain> domain, ibv_mr* mr, const MemorySpan& memory,
                           const Gpu& gpu) noexcept
    : domain_(std::move(domain)),
      mr_(mr),
      address_(reinterpret_cast<std::uint64_t>(memory.address)),
      length_(memory.length),
      gpu_(gpu),
      owns_memory_(memory.kind == MemoryKind::kNewGpu) {}

MemoryRegion::~MemoryRegion() {
  if (mr_ == nullptr) return;
  domain_->context()->call().dereg_mr(mr_);
  if (owns_memory_) free_allocated(gpu_.ordinal, address_);
}

MemoryRegion::MemoryRegion(MemoryRegion&& other) noexcept { *this = std::move(other); }

MemoryRegion& MemoryRegion::operator=(MemoryRegion&& other) noexcept {
  std::swap(domain_, other.domain_);
  std::swap(mr_, other.mr_);
  std::swap(address_, other.address_);
  std::swap(length_, other.length_);
  std::swap(gpu_, other.gpu_);
  std::swap(owns_memory_, other.owns_memory_);
  return *this;
}

void MemoryRegion::flush_by_driver() const {
  const std::string what = fmt::format("flush arrivals in memory of GPU {}", gpu_.ordinal);
  const CudaDriver* const driver = cuda_driver_in_process();
  if (driver == nullptr || driver->flush_remote_writes == nullptr) throw Error{what, "this CUDA driver cannot"};
  const CudaSection section{*driver, primary_context(*driver, gpu_.ordinal)};
  if (!section) throw Error{what, "the process is ending"};
  if (const auto result = driver->flush_remote_writes(0, kToOwner); result != 0) {
    throw Error{what, driver->error_text(result), "Flush by a loopback READ"};
  }
}

bool MemoryRegion::still_valid() const noexcept {
  if (gpu_.path == RegistrationPath::kHostPages || gpu_.buffer_id == 0) return true;
  const CudaDriver* const driver = cuda_driver_in_process();
  return driver != nullptr && cuda_buffer_id(*driver, address_) == gpu_.buffer_id;
}

MemoryRegion register_gpu_memory_with_hca(const std::shared_ptr<ProtectionDomain>& domain, const MemorySpan& memory,
                                          MemoryAccess access) {
  const int flags = access_flags(access);
  const bool dmabuf = memory.kind == MemoryKind::kDmaBuf;
  const std::string kind = dmabuf ? "DMA-BUF" : memory.kind == MemoryKind::kNewGpu ? "GPU" : "host";
  if (memory.length == 0) throw Error{describe(*domain, memory, kind), "the range is empty"};
  if (memory.kind == MemoryKind::kNewGpu) return register_new_gpu(domain, memory, flags);
  if (memory.kind == MemoryKind::kAny) {
    const auto pointer = cuda_pointer(reinterpret_cast<std::uint64_t>(memory.address));
    if (pointer && pointer->kind != CudaPointer::Kind::kHost) {
      return register_gpu(domain, *cuda_driver_in_process(), *pointer, memory, flags);
    }
  }
  errno = 0;
  ibv_mr* const mr = dmabuf ? register_dmabuf(*domain, memory, memory.dmabuf_fd, memory.dmabuf_offset, flags)
                            : domain->context()->call().reg_mr(domain->raw(), memory.address, memory.length, flags);
  if (mr == nullptr) {
    const int cause = errno;
    throw system_error(describe(*domain, memory, kind), cause, remedy_for(cause, memory.kind));
  }
  return MemoryRegion{domain, mr, memory, {}};
}

}  // namespace tensorwire::verbs
