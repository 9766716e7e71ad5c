#include "base/cuda_driver.hpp"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <mutex>

namespace tensorwire {

namespace {

constexpr const char* kLibrary = "libcuda.so.1";

// Values of cuda.h. tests/gpu asks a real driver for them.
constexpr int kCaptureRelaxed = 2;
constexpr int kMemoryType = 2, kBufferId = 7, kIsManaged = 8, kDeviceOrdinal = 9, kRangeStart = 11, kRangeSize = 12,
              kMapped = 13, kRdmaCapable = 15, kPool = 17, kMappingSize = 18, kMappingBase = 19;
constexpr unsigned kTypeHost = 1, kTypeDevice = 2;

/// From the first use of the driver until the process ends.
std::atomic<bool> g_ending{false};
std::atomic<int> g_inside{0};

/// Registered after the driver has registered its own end, so it runs before it: a thread of ours that is inside a call
/// gets a moment to come out, and none goes in any more.
void end_calls() {
  g_ending.store(true);
  const timespec pause{0, 1'000'000};
  for (int i = 0; i < 100 && g_inside.load() != 0; ++i) ::nanosleep(&pause, nullptr);
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, CudaDriver& d) {
  find(library, "cuStreamWriteValue32_v2", d.write_value);
  find(library, "cuMemGetHandleForAddressRange", d.export_range);
  find(library, "cuFlushGPUDirectRDMAWrites", d.flush_remote_writes);
  find(library, "cuInit", d.init);
  find(library, "cuDeviceGetCount", d.device_count);
  find(library, "cuDevicePrimaryCtxRelease_v2", d.primary_release);
  find(library, "cuMemsetD16_v2", d.fill16);
  find(library, "cuStreamSynchronize", d.stream_synchronize);
  return find(library, "cuGetErrorName", d.get_error_name) && find(library, "cuDeviceGet", d.device_get) &&
         find(library, "cuDeviceGetAttribute", d.device_attribute) && find(library, "cuDeviceGetName", d.device_name) &&
         find(library, "cuDevicePrimaryCtxRetain", d.primary_retain) &&
         find(library, "cuCtxPushCurrent_v2", d.push_context) && find(library, "cuCtxPopCurrent_v2", d.pop_context) &&
         find(library, "cuThreadExchangeStreamCaptureMode", d.exchange_capture_mode) &&
         find(library, "cuPointerGetAttribute", d.pointer_attribute) &&
         find(library, "cuCtxGetStreamPriorityRange", d.stream_priorities) &&
         find(library, "cuStreamCreateWithPriority", d.stream_create) &&
         find(library, "cuStreamDestroy_v2", d.stream_destroy) && find(library, "cuStreamQuery", d.stream_query) &&
         find(library, "cuMemHostAlloc", d.host_alloc) && find(library, "cuMemFreeHost", d.host_free) &&
         find(library, "cuMemHostGetDevicePointer_v2", d.host_device_address) &&
         find(library, "cuMemcpyDtoHAsync_v2", d.copy_to_host) &&
         find(library, "cuMemcpyHtoDAsync_v2", d.copy_to_device) && find(library, "cuMemAlloc_v2", d.memory_alloc) &&
         find(library, "cuMemFree_v2", d.memory_free);
}

/// Null when the library is not there, or lacks something. It stays loaded.
const CudaDriver* look_up(int flags) {
  static std::mutex mutex;
  static CudaDriver driver;
  static bool complete = false;
  const std::lock_guard guard{mutex};
  if (complete) return &driver;
  void* const library = ::dlopen(kLibrary, RTLD_NOW | flags);
  if (library == nullptr || !find_all(library, driver)) return nullptr;
  std::atexit(end_calls);
  complete = true;
  return &driver;
}

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

/// Leaves `value` as it is where the driver does not know the attribute, or not of this address.
template <class Value>
bool ask(const CudaDriver& driver, int attribute, std::uint64_t address, Value& value) noexcept {
  Value told{};
  if (driver.pointer_attribute(&told, attribute, address) != 0) return false;
  value = told;
  return true;
}

}  // namespace

std::string CudaDriver::error_text(Result result) const {
  const char* name = nullptr;
  const bool known = get_error_name(result, &name) == 0 && name != nullptr;
  return (known ? std::string{name} : std::string{"an error of CUDA"}) + " (" + std::to_string(result) + ")";
}

const CudaDriver* cuda_driver_in_process() noexcept {
  static std::atomic<const CudaDriver*> found{nullptr};
  static std::atomic<std::uint64_t> looked_at{0};
  if (const CudaDriver* const known = found.load(std::memory_order_acquire)) return known;
  const std::uint64_t loads = loads_so_far();
  // Another thread may have found it between the two looks.
  if (looked_at.load(std::memory_order_acquire) == loads) return found.load(std::memory_order_acquire);
  if (const CudaDriver* const driver = look_up(RTLD_NOLOAD)) found.store(driver, std::memory_order_release);
  looked_at.store(loads, std::memory_order_release);
  return found.load(std::memory_order_acquire);
}

const CudaDriver* load_cuda_driver() noexcept { return look_up(0); }

CudaSection::CudaSection(const CudaDriver& driver, void* context) noexcept : driver_(driver) {
  g_inside.fetch_add(1);
  if (context == nullptr || g_ending.load()) return;
  mode_ = kCaptureRelaxed;
  if (driver_.exchange_capture_mode(&mode_) != 0) return;
  entered_ = driver_.push_context(context) == 0;
  if (!entered_) driver_.exchange_capture_mode(&mode_);
}

CudaSection::~CudaSection() {
  if (entered_) {
    void* ours = nullptr;
    driver_.pop_context(&ours);
    driver_.exchange_capture_mode(&mode_);
  }
  g_inside.fetch_sub(1);
}

std::optional<int> cuda_device_of(const void* address) noexcept {
  const CudaDriver* const driver = cuda_driver_in_process();
  if (driver == nullptr || address == nullptr || g_ending.load()) return std::nullopt;
  const auto at = reinterpret_cast<std::uint64_t>(address);
  unsigned type = 0;
  int device = 0;
  if (!ask(*driver, kMemoryType, at, type) || type != kTypeDevice) return std::nullopt;
  return ask(*driver, kDeviceOrdinal, at, device) ? std::optional{device} : std::nullopt;
}

std::optional<CudaPointer> cuda_pointer(std::uint64_t address) noexcept {
  const CudaDriver* const driver = cuda_driver_in_process();
  if (driver == nullptr || address == 0 || g_ending.load()) return std::nullopt;
  unsigned type = 0;
  if (!ask(*driver, kMemoryType, address, type) || (type != kTypeHost && type != kTypeDevice)) return std::nullopt;
  CudaPointer found;
  unsigned managed = 0;
  unsigned mapped = 1;
  unsigned capable = 0;
  void* pool = nullptr;
  std::uint64_t mapping_base = 0;
  std::size_t mapping_bytes = 0;
  std::size_t range_bytes = 0;
  ask(*driver, kIsManaged, address, managed);
  ask(*driver, kDeviceOrdinal, address, found.device);
  ask(*driver, kBufferId, address, found.buffer_id);
  ask(*driver, kRangeStart, address, found.range_start);
  ask(*driver, kRangeSize, address, range_bytes);
  ask(*driver, kMapped, address, mapped);
  ask(*driver, kRdmaCapable, address, capable);
  ask(*driver, kPool, address, pool);
  ask(*driver, kMappingBase, address, mapping_base);
  ask(*driver, kMappingSize, address, mapping_bytes);
  found.kind = managed != 0        ? CudaPointer::Kind::kManaged
               : type == kTypeHost ? CudaPointer::Kind::kHost
                                   : CudaPointer::Kind::kDevice;
  found.range_bytes = range_bytes;
  found.from_pool = pool != nullptr;
  found.mapped = mapped != 0;
  found.rdma_capable = capable != 0;
  found.mapping_end = mapping_bytes != 0 ? mapping_base + mapping_bytes : found.range_start + found.range_bytes;
  return found;
}

std::uint64_t cuda_buffer_id(const CudaDriver& driver, std::uint64_t address) noexcept {
  std::uint64_t id = 0;
  if (!g_ending.load()) ask(driver, kBufferId, address, id);
  return id;
}

}  // namespace tensorwire
