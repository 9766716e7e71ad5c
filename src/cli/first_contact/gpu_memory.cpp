#include "cli/first_contact/gpu_memory.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

#include "base/error.hpp"
#include "base/round_up.hpp"

namespace tensorwire::cli {

/// As cuda.h declares them, under the names that its macros give them.
struct CudaCalls {
  int (*init)(unsigned) = nullptr;
  int (*error_name)(int, const char**) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*device_name)(char*, int, int) = nullptr;
  int (*primary_retain)(void**, int) = nullptr;
  int (*primary_release)(int) = nullptr;
  int (*set_current)(void*) = nullptr;
  int (*allocate)(unsigned long long*, std::size_t) = nullptr;
  int (*free)(unsigned long long) = nullptr;
  int (*fill16)(unsigned long long, unsigned short, std::size_t) = nullptr;
  int (*copy_to_host)(void*, unsigned long long, std::size_t) = nullptr;
  int (*synchronize)() = nullptr;
  int (*stream_create)(void**, unsigned) = nullptr;
  int (*stream_destroy)(void*) = nullptr;
  int (*stream_synchronize)(void*) = nullptr;
};

namespace {

constexpr const char* kCudaLibrary = "libcuda.so.1";
constexpr unsigned kNonBlockingStream = 1;    // CU_STREAM_NON_BLOCKING
constexpr std::size_t kExportedPages = 4096;  // whole pages of the host can be exported

/// Null, with the reason, where this host has no driver.
const CudaCalls* load_calls(std::string& why) {
  static CudaCalls calls;
  static std::string problem;
  static const bool usable = [] {
    void* const library = dlopen(kCudaLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      problem = fmt::format("{} is not on this host: no NVIDIA driver", kCudaLibrary);
      return false;
    }
    const auto find = [&](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    const bool whole =
        find("cuInit", calls.init) && find("cuGetErrorName", calls.error_name) &&
        find("cuDeviceGetCount", calls.device_count) && find("cuDeviceGet", calls.device_get) &&
        find("cuDeviceGetName", calls.device_name) && find("cuDevicePrimaryCtxRetain", calls.primary_retain) &&
        find("cuDevicePrimaryCtxRelease_v2", calls.primary_release) && find("cuCtxSetCurrent", calls.set_current) &&
        find("cuMemAlloc_v2", calls.allocate) && find("cuMemFree_v2", calls.free) &&
        find("cuMemsetD16_v2", calls.fill16) && find("cuMemcpyDtoH_v2", calls.copy_to_host) &&
        find("cuCtxSynchronize", calls.synchronize) && find("cuStreamCreate", calls.stream_create) &&
        find("cuStreamDestroy_v2", calls.stream_destroy) && find("cuStreamSynchronize", calls.stream_synchronize);
    if (!whole) problem = fmt::format("{} is older than CUDA 11", kCudaLibrary);
    return whole;
  }();
  why = problem;
  return usable ? &calls : nullptr;
}

std::string name_of_result(const CudaCalls& calls, int result) {
  const char* name = nullptr;
  return calls.error_name(result, &name) == 0 && name != nullptr ? std::string{name} : fmt::format("error {}", result);
}

void check_gpu(const CudaCalls& calls, int result, const char* what) {
  if (result != 0) throw Error{what, name_of_result(calls, result)};
}

const CudaCalls& calls_or_throw() {
  std::string why;
  const CudaCalls* const calls = load_calls(why);
  if (calls == nullptr) throw Error{"use a GPU", why};
  return *calls;
}

}  // namespace

int Gpu::count(std::string& why) {
  const CudaCalls* const calls = load_calls(why);
  if (calls == nullptr) return 0;
  int count = 0;
  const int started = calls->init(0);
  const int counted = started == 0 ? calls->device_count(&count) : started;
  if (counted != 0) why = fmt::format("CUDA does not start: {}", name_of_result(*calls, counted));
  if (counted == 0 && count == 0) why = "CUDA sees no GPU";
  return counted == 0 ? count : 0;
}

Gpu::Gpu(int ordinal) : calls_(calls_or_throw()) {
  check_gpu(calls_, calls_.init(0), "start CUDA");
  check_gpu(calls_, calls_.device_get(&device_, ordinal), "choose a GPU");
  std::array<char, 128> name{};
  check_gpu(calls_, calls_.device_name(name.data(), static_cast<int>(name.size()) - 1, device_),
            "ask for a GPU's name");
  name_ = name.data();
  void* context = nullptr;
  check_gpu(calls_, calls_.primary_retain(&context, device_), "use a GPU");
  check_gpu(calls_, calls_.set_current(context), "use a GPU");
}

Gpu::~Gpu() { calls_.primary_release(device_); }

GpuBuffer::GpuBuffer(const Gpu& gpu, std::size_t bytes) : gpu_(gpu), bytes_(round_up(bytes, kExportedPages)) {
  unsigned long long address = 0;
  check_gpu(gpu_.calls(), gpu_.calls().allocate(&address, bytes_), "allocate memory of a GPU");
  address_ = address;
}

GpuBuffer::~GpuBuffer() { gpu_.calls().free(address_); }

void GpuBuffer::fill(std::uint16_t value) const {
  check_gpu(gpu_.calls(), gpu_.calls().fill16(address_, value, bytes_ / sizeof value), "fill memory of a GPU");
  check_gpu(gpu_.calls(), gpu_.calls().synchronize(), "fill memory of a GPU");
}

void GpuBuffer::copy_to(std::span<std::byte> host) const {
  check_gpu(gpu_.calls(), gpu_.calls().copy_to_host(host.data(), address_, host.size()), "read memory of a GPU");
}

GpuStream::GpuStream(const Gpu& gpu) : gpu_(gpu) {
  check_gpu(gpu_.calls(), gpu_.calls().stream_create(&stream_, kNonBlockingStream), "make a stream");
}

GpuStream::~GpuStream() { gpu_.calls().stream_destroy(stream_); }

void GpuStream::wait() const { check_gpu(gpu_.calls(), gpu_.calls().stream_synchronize(stream_), "wait for a stream"); }

}  // namespace tensorwire::cli
