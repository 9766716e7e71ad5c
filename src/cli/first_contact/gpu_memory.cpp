#include "cli/first_contact/gpu_memory.hpp"

#include <fmt/format.h>

#include <array>

#include "base/error.hpp"
#include "base/round_up.hpp"

namespace tensorwire::cli {

namespace {

constexpr unsigned kNonBlockingStream = 1;    // CU_STREAM_NON_BLOCKING
constexpr std::size_t kExportedPages = 4096;  // whole pages of the host can be exported

/// Null, with the reason, where this host has no driver.
const CudaDriver* driver_or(std::string& why) {
  const CudaDriver* const driver = load_cuda_driver();
  if (driver == nullptr) why = "there is no libcuda.so.1 of CUDA 11 or newer on this host: no NVIDIA driver";
  if (driver == nullptr || driver->serves_programs()) return driver;
  why = "libcuda.so.1 is older than CUDA 11";
  return nullptr;
}

void check_gpu(const CudaDriver& driver, int result, const char* what) {
  if (result != 0) throw Error{what, driver.error_text(result)};
}

const CudaDriver& driver_or_throw() {
  std::string why;
  const CudaDriver* const driver = driver_or(why);
  if (driver == nullptr) throw Error{"use a GPU", why};
  return *driver;
}

}  // namespace

int Gpu::count(std::string& why) {
  const CudaDriver* const driver = driver_or(why);
  if (driver == nullptr) return 0;
  int count = 0;
  const int started = driver->init(0);
  const int counted = started == 0 ? driver->device_count(&count) : started;
  if (counted != 0) why = fmt::format("CUDA does not start: {}", driver->error_text(counted));
  if (counted == 0 && count == 0) why = "CUDA sees no GPU";
  return counted == 0 ? count : 0;
}

Gpu::Gpu(int ordinal) : driver_(driver_or_throw()) {
  check_gpu(driver_, driver_.init(0), "start CUDA");
  check_gpu(driver_, driver_.device_get(&device_, ordinal), "choose a GPU");
  std::array<char, 128> name{};
  check_gpu(driver_, driver_.device_name(name.data(), static_cast<int>(name.size()) - 1, device_),
            "ask for a GPU's name");
  name_ = name.data();
  void* context = nullptr;
  check_gpu(driver_, driver_.primary_retain(&context, device_), "use a GPU");
  check_gpu(driver_, driver_.push_context(context), "use a GPU");
}

Gpu::~Gpu() {
  void* ours = nullptr;
  driver_.pop_context(&ours);
  driver_.primary_release(device_);
}

GpuBuffer::GpuBuffer(const Gpu& gpu, std::size_t bytes) : gpu_(gpu), bytes_(round_up(bytes, kExportedPages)) {
  unsigned long long address = 0;
  check_gpu(gpu_.driver(), gpu_.driver().memory_alloc(&address, bytes_), "allocate memory of a GPU");
  address_ = address;
}

GpuBuffer::~GpuBuffer() { gpu_.driver().memory_free(address_); }

void GpuBuffer::fill(std::uint16_t value) const {
  check_gpu(gpu_.driver(), gpu_.driver().fill16(address_, value, bytes_ / sizeof value), "fill memory of a GPU");
  check_gpu(gpu_.driver(), gpu_.driver().stream_synchronize(nullptr), "fill memory of a GPU");
}

void GpuBuffer::copy_to(std::span<std::byte> host) const {
  check_gpu(gpu_.driver(), gpu_.driver().copy_to_host(host.data(), address_, host.size(), nullptr),
            "read memory of a GPU");
  check_gpu(gpu_.driver(), gpu_.driver().stream_synchronize(nullptr), "read memory of a GPU");
}

GpuStream::GpuStream(const Gpu& gpu) : gpu_(gpu) {
  check_gpu(gpu_.driver(), gpu_.driver().stream_create(&stream_, kNonBlockingStream, 0), "make a stream");
}

GpuStream::~GpuStream() { gpu_.driver().stream_destroy(stream_); }

void GpuStream::wait() const {
  check_gpu(gpu_.driver(), gpu_.driver().stream_synchronize(stream_), "wait for a stream");
}

}  // namespace tensorwire::cli
