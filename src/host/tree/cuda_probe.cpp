#include "host/tree/cuda_probe.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "host/tree/run_program.hpp"

namespace tensorwire::host {

namespace {

constexpr Ps kCudaBound = 1 * kSecond;
constexpr int kDmabufSupported = 124;  ///< CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED; unknown to CUDA before 11.7
constexpr int kInvalidValue = 1;

/// The driver API's calls; a CUdevice is an int there, and 0 is success.
struct CudaCalls {
  int (*init)(unsigned flags);
  int (*count)(int* devices);
  int (*get)(int* device, int ordinal);
  int (*pci_address)(char* text, int length, int device);
  int (*attribute)(int* value, int which, int device);
};

template <class Call>
bool find_cuda_call(void* library, Call& call, const char* name) {
  void* symbol = dlsym(library, name);
  std::memcpy(&call, &symbol, sizeof call);
  return symbol != nullptr;
}

/// @return errno
int load_cuda(CudaCalls& cuda) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return ELIBACC;
  const bool all = find_cuda_call(library, cuda.init, "cuInit") &&
                   find_cuda_call(library, cuda.count, "cuDeviceGetCount") &&
                   find_cuda_call(library, cuda.get, "cuDeviceGet") &&
                   find_cuda_call(library, cuda.pci_address, "cuDeviceGetPCIBusId") &&
                   find_cuda_call(library, cuda.attribute, "cuDeviceGetAttribute");
  return all ? 0 : ELIBBAD;
}

int ask_dmabuf(std::string& text) {
  CudaCalls cuda{};
  if (const int error = load_cuda(cuda); error != 0) return error;
  int devices = 0;
  if (cuda.init(0) != 0 || cuda.count(&devices) != 0 || devices == 0) return ENODEV;
  for (int i = 0; i < devices; ++i) {
    char address[32] = "";
    int device = 0;
    int supported = 0;
    if (cuda.get(&device, i) != 0 || cuda.pci_address(address, sizeof address, device) != 0) return EIO;
    const int status = cuda.attribute(&supported, kDmabufSupported, device);
    if (status != 0 && status != kInvalidValue) return EIO;
    std::string name = address;  // CUDA writes hex digits large, and the kernel small
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    text += fmt::format("{} {}\n", name, status == 0 ? supported : 0);
  }
  return 0;
}

}  // namespace

Answer cuda_dmabuf_answers(const std::string& /*subject*/) { return run_apart(ask_dmabuf, kCudaBound); }

}  // namespace tensorwire::host
