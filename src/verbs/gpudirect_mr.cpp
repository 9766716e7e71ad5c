#include "verbs/gpudirect_mr.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"

namespace tensorwire::verbs {

namespace {

int access_flags(MemoryAccess access) noexcept {
  int flags = 0;
  if (access.local_write) flags |= IBV_ACCESS_LOCAL_WRITE;
  if (access.remote_write) flags |= IBV_ACCESS_REMOTE_WRITE;
  if (access.remote_read) flags |= IBV_ACCESS_REMOTE_READ;
  return flags;
}

std::string describe(const ProtectionDomain& domain, const MemorySpan& memory) {
  return fmt::format("register {} of {} memory at {} with {}", format_bytes(memory.length),
                     memory.kind == MemoryKind::kHost ? "host" : "DMA-BUF", memory.address, domain.context()->name());
}

std::string remedy_for(int errno_value, MemoryKind kind) {
  switch (errno_value) {
    case ENOMEM:
      return "Raise the memlock limit (ulimit -l unlimited; in a container --ulimit memlock=-1)";
    case EFAULT:
      return kind == MemoryKind::kHost ? "The range is not mapped, or is read-only while local_write was asked for"
                                       : "The DMA-BUF is shorter than the range";
    case EOPNOTSUPP:
      return "The device or kernel has no DMA-BUF registration";
    case EINVAL:
      return "Remote writes need local write access, and the range must not wrap";
    default:
      return {};
  }
}

ibv_mr* register_pages(const ProtectionDomain& domain, const MemorySpan& memory, int flags) {
  const Functions& call = domain.context()->call();
  if (memory.kind == MemoryKind::kHost) return call.reg_mr(domain.raw(), memory.address, memory.length, flags);
  if (call.reg_dmabuf_mr == nullptr) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  return call.reg_dmabuf_mr(domain.raw(), memory.dmabuf_offset, memory.length,
                            reinterpret_cast<std::uint64_t>(memory.address), memory.dmabuf_fd, flags);
}

}  // namespace

MemoryRegion::MemoryRegion(std::shared_ptr<ProtectionDomain> domain, ibv_mr* mr) noexcept
    : domain_(std::move(domain)), mr_(mr) {}

MemoryRegion::~MemoryRegion() {
  if (mr_ != nullptr) domain_->context()->call().dereg_mr(mr_);
}

MemoryRegion::MemoryRegion(MemoryRegion&& other) noexcept
    : domain_(std::move(other.domain_)), mr_(std::exchange(other.mr_, nullptr)) {}

MemoryRegion& MemoryRegion::operator=(MemoryRegion&& other) noexcept {
  std::swap(domain_, other.domain_);
  std::swap(mr_, other.mr_);
  return *this;
}

MemoryRegion register_gpu_memory_with_hca(const std::shared_ptr<ProtectionDomain>& domain, const MemorySpan& memory,
                                          MemoryAccess access) {
  const int flags = access_flags(access);
  if (memory.length == 0) throw Error{describe(*domain, memory), "the range is empty"};
  errno = 0;
  ibv_mr* mr = register_pages(*domain, memory, flags);
  if (mr == nullptr) {
    const int cause = errno;
    throw system_error(describe(*domain, memory), cause, remedy_for(cause, memory.kind));
  }
  return MemoryRegion{domain, mr};
}

}  // namespace tensorwire::verbs
