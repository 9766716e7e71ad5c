#include "cuda/gpu_memory.hpp"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "cuda/driver.cuh"

namespace tensorwire::cuda {

namespace {

CUdeviceptr address_of(const std::byte* data) { return reinterpret_cast<CUdeviceptr>(data); }

/// The NUMA node whose memory the GPU is nearest to; 0 where nobody knows.
int node_of(int device) {
  int node = -1;
  const cudaError_t asked = cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, device);
  check(asked, fmt::format("ask for the NUMA node of GPU {}", device));
  return node < 0 ? 0 : node;
}

CUmemLocation on(int device) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

CUmemLocation beside(int device) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  location.id = node_of(device);
  return location;
}

}  // namespace

GpuMemory GpuMemory::allocate(std::size_t bytes, int device, Home home, std::span<const int> reached_by) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = home == Home::kGpu ? on(device) : beside(device);
  const std::string_view place = home == Home::kGpu ? "on" : "of the host beside";
  std::size_t step = 0;
  check(driver().granularity(&step, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        fmt::format("ask how memory {} GPU {} is allocated", place, device));
  GpuMemory memory;
  memory.bytes_ = (bytes + step - 1) / step * step;
  CUmemGenericAllocationHandle handle = 0;
  check(driver().create(&handle, memory.bytes_, &properties, 0),
        fmt::format("allocate {} bytes of shareable memory {} GPU {}", memory.bytes_, place, device));
  memory.handle_ = handle;
  memory.map(reached_by);
  const OnDevice current(device);
  memory.fill(0, memory.bytes_, 0);
  return memory;
}

void GpuMemory::fill(std::size_t at, std::size_t bytes, int value) const {
  // A stream of its own: the default one would wait for whatever else runs on this GPU, which may be waiting for a
  // peer.
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
  const cudaError_t set = cudaMemsetAsync(data_ + at, value, bytes, stream);
  const cudaError_t waited = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  check(set, "fill scratch memory");
  check(waited, "fill scratch memory");
}

GpuMemory GpuMemory::of_fd(int fd, std::size_t bytes, int device) {
  CUmemGenericAllocationHandle handle = 0;
  void* descriptor = reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd));
  check(driver().import_handle(&handle, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "import the GPU memory of another process");
  GpuMemory memory;
  memory.bytes_ = bytes;
  memory.handle_ = handle;
  memory.map(std::span(&device, 1));
  return memory;
}

void GpuMemory::map(std::span<const int> devices) {
  CUdeviceptr address = 0;
  check(driver().reserve(&address, bytes_, 0, 0, 0), fmt::format("reserve {} bytes of addresses", bytes_));
  const CUresult mapped = driver().map(address, bytes_, 0, handle_, 0);
  if (mapped != CUDA_SUCCESS) {
    driver().unreserve(address, bytes_);
    check(mapped, "map GPU memory");
  }
  data_ = reinterpret_cast<std::byte*>(address);
  std::vector<CUmemAccessDesc> access;
  for (const int device : devices) {
    CUmemAccessDesc description{};
    description.location = on(device);
    description.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    access.push_back(description);
  }
  check(driver().set_access(address, bytes_, access.data(), access.size()),
        fmt::format("let GPUs {} reach the memory of a rank (are they linked?)", fmt::join(devices, ", ")));
}

GpuMemory::~GpuMemory() {
  if (data_ != nullptr) {
    driver().unmap(address_of(data_), bytes_);
    driver().unreserve(address_of(data_), bytes_);
  }
  if (handle_ != 0) driver().release(handle_);
}

UniqueFd GpuMemory::descriptor() const {
  int fd = -1;
  check(driver().export_handle(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "export GPU memory for other processes");
  return UniqueFd(fd);
}

}  // namespace tensorwire::cuda
