// Memory that an Hca may read and write: regions of the host and of GPUs, DMA-BUFs, and windows into them.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "softhca/hca_impl.hpp"

namespace tensorwire::softhca {

namespace {

/// A fork's child holds a copy of an Hca that only the parent can run.
constexpr int kDeadErrno = EIO;

constexpr std::uint32_t kRemoteWriters = transport::kAccessRemoteWrite | transport::kAccessRemoteAtomic;

/// A DMA-BUF tells its size as the end that it can be sought to.
int check_dmabuf(int fd, std::uint64_t offset, std::uint64_t length) noexcept {
  if (::fcntl(fd, F_GETFD) < 0) return EBADF;
  const ::off_t size = ::lseek(fd, 0, SEEK_END);
  if (size < 0) return EINVAL;
  ::lseek(fd, 0, SEEK_SET);
  const auto bytes = static_cast<std::uint64_t>(size);
  return offset <= bytes && length <= bytes - offset ? 0 : EINVAL;
}

}  // namespace

int HcaImpl::register_memory(transport::PdId pd, std::uint64_t address, std::uint64_t length, std::uint64_t iova,
                             std::uint32_t access, std::uint32_t& key) {
  if (dead_) return kDeadErrno;
  const bool local_write = (access & transport::kAccessLocalWrite) != 0;
  if ((access & kRemoteWriters) != 0 && !local_write) return EINVAL;  // IB specification 10.6.3.1
  if (length > limits().max_mr_size) return EINVAL;
  const transport::MemoryRegion region{
      .iova = iova, .length = length, .address = address, .access = access, .key = 0, .pd = pd, .ops = &host_memory_};
  const GpuPlatform::Found gpu = gpus_->find(address, length);
  if (gpu.error != 0) {
    log_warn(fmt::format("register {} of GPU memory at {:#x}: {} ({})", format_bytes(length), address, gpu.why,
                         errno_text(gpu.error)));
    return gpu.error;
  }
  if (gpu.range) return register_gpu_memory(*gpu.range, region, key);
  if (const int error = check_mapped(address, length, local_write); error != 0) return error;
  return add_region(region, nullptr, key);
}

int HcaImpl::register_gpu_memory(const GpuRange& range, transport::MemoryRegion region, std::uint32_t& key) {
  try {
    std::unique_ptr<StagedRegion> staged = staged_memory_.make_region(range);
    region.ops = staged.get();
    region.staged = true;
    return add_region(region, std::move(staged), key);
  } catch (const Error& error) {
    log_error(error.what());
    return EIO;
  }
}

int HcaImpl::add_region(const transport::MemoryRegion& region, std::unique_ptr<StagedRegion> staged,
                        std::uint32_t& key) {
  return shard_.locked([&] {
    if (!pds_.contains(region.pd)) return EINVAL;
    key = shard_.engine().memory().add(region).key;
    if (staged) {
      shard_.use(staged_memory_);
      staged_regions_.emplace(key, std::move(staged));
    }
    return 0;
  });
}

int HcaImpl::register_dmabuf(transport::PdId pd, int fd, std::uint64_t offset, std::uint64_t length, std::uint64_t iova,
                             std::uint32_t access, std::uint32_t& key) {
  if (dead_) return kDeadErrno;
  if (!gpus_->present()) return EOPNOTSUPP;
  if (const int error = check_dmabuf(fd, offset, length); error != 0) return error;
  if (const GpuPlatform::Found gpu = gpus_->find(iova, length); gpu.error == 0 && !gpu.range) {
    log_warn(
        fmt::format("register a DMA-BUF: the iova {:#x} is not the address of memory of a GPU; this HCA reaches it "
                    "by its address and not through the descriptor ({})",
                    iova, errno_text(EINVAL)));
    return EINVAL;
  }
  return register_memory(pd, iova, length, iova, access, key);
}

int HcaImpl::deregister_memory(std::uint32_t key) {
  if (dead_) return kDeadErrno;
  return shard_.locked([&] {
    shard_.udp().read_sources();
    const auto staged = staged_regions_.find(key);
    if (staged != staged_regions_.end()) staged_memory_.settle_all();  // copies may still write into it
    transport::MemoryTable& memory = shard_.engine().memory();
    if (!memory.remove(key)) return memory.find(key) != nullptr ? EBUSY : EINVAL;
    if (staged != staged_regions_.end()) staged_regions_.erase(staged);
    return 0;
  });
}

int HcaImpl::allocate_window(transport::PdId pd, transport::WindowType type, std::uint32_t& key) {
  if (dead_) return kDeadErrno;
  return shard_.locked([&] {
    if (!pds_.contains(pd)) return EINVAL;
    key = shard_.engine().memory().add_window(pd, type);
    return key != 0 ? 0 : ENOMEM;
  });
}

int HcaImpl::deallocate_window(std::uint32_t key) {
  if (dead_) return kDeadErrno;
  return shard_.locked([&] { return shard_.engine().memory().remove_window(key) ? 0 : EINVAL; });
}

}  // namespace tensorwire::softhca
