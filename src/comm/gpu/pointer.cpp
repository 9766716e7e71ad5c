#include "comm/gpu/pointer.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstdint>

namespace tensorwire::comm {

namespace {

/// cuPointerGetAttribute, and of its attributes and their values those that are asked for here (cuda.h).
using PointerAttribute = int (*)(void* value, int attribute, unsigned long long address);
constexpr int kAttributeMemoryType = 2;
constexpr int kAttributeDevice = 9;
constexpr unsigned kMemoryOfDevice = 2;

/// Libraries that this process has loaded so far: a number that changes when there is one more.
std::uint64_t loads_so_far() noexcept {
  std::uint64_t loads = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        *static_cast<std::uint64_t*>(to) = info->dlpi_adds;
        return 1;
      },
      &loads);
  return loads;
}

/// Null while the driver is not in the process: then nobody has memory of a GPU.
PointerAttribute driver_in_process() noexcept {
  static std::atomic<PointerAttribute> found{nullptr};
  static std::atomic<std::uint64_t> looked_at{0};
  if (const PointerAttribute known = found.load(std::memory_order_acquire)) return known;
  const std::uint64_t loads = loads_so_far();
  // Another thread may have found it between the two looks.
  if (looked_at.load(std::memory_order_acquire) == loads) return found.load(std::memory_order_acquire);
  if (void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD)) {
    found.store(reinterpret_cast<PointerAttribute>(::dlsym(driver, "cuPointerGetAttribute")),
                std::memory_order_release);
  }
  looked_at.store(loads, std::memory_order_release);
  return found.load(std::memory_order_acquire);
}

}  // namespace

std::optional<int> gpu_of(const void* address) noexcept {
  const PointerAttribute ask = driver_in_process();
  if (ask == nullptr || address == nullptr) return std::nullopt;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  unsigned type = 0;
  int device = 0;
  if (ask(&type, kAttributeMemoryType, at) != 0 || type != kMemoryOfDevice) return std::nullopt;
  if (ask(&device, kAttributeDevice, at) != 0) return std::nullopt;
  return device;
}

}  // namespace tensorwire::comm
