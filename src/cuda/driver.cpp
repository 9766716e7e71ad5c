#include "cuda/driver.cuh"

#include "base/error.hpp"

namespace tensorwire::cuda {

namespace {

/// All of these are as they were in CUDA 11.3, which is older than any driver that runs this code.
constexpr unsigned kVersion = 11030;

template <class Function>
void look_up(const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
  check(error, std::string("look up ") + name + " in the CUDA driver");
  if (result != cudaDriverEntryPointSuccess || found == nullptr) {
    throw Error(std::string("look up ") + name + " in the CUDA driver", "it is not there", "Install a newer driver");
  }
  function = reinterpret_cast<Function>(found);
}

Driver look_up_all() {
  Driver driver{};
  look_up("cuMemGetAllocationGranularity", driver.granularity);
  look_up("cuMemCreate", driver.create);
  look_up("cuMemRelease", driver.release);
  look_up("cuMemAddressReserve", driver.reserve);
  look_up("cuMemAddressFree", driver.unreserve);
  look_up("cuMemMap", driver.map);
  look_up("cuMemUnmap", driver.unmap);
  look_up("cuMemSetAccess", driver.set_access);
  look_up("cuMemExportToShareableHandle", driver.export_handle);
  look_up("cuMemImportFromShareableHandle", driver.import_handle);
  return driver;
}

}  // namespace

void check(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  throw Error(what, std::string(cudaGetErrorString(error)) + " (" + cudaGetErrorName(error) + ")");
}

void check(CUresult error, const std::string& what) {
  if (error == CUDA_SUCCESS) return;
  throw Error(what, "the CUDA driver says error " + std::to_string(static_cast<int>(error)));
}

const Driver& driver() {
  static const Driver found = look_up_all();
  return found;
}

}  // namespace tensorwire::cuda
