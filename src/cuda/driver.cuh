// CUDA's errors as Errors, the device that a thread works on, and what this room uses of the driver's own interface,
// looked up when it is first needed: nothing here is linked against libcuda. (*.cuh need CUDA's headers, *.hpp do not.)
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>

namespace tensorwire::cuda {

/// @throws Error with `what` and CUDA's name and words for the error
void check(cudaError_t error, const std::string& what);
void check(CUresult error, const std::string& what);

/// The functions of virtual memory management.
struct Driver {
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) unreserve;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
  decltype(&cuMemExportToShareableHandle) export_handle;
  decltype(&cuMemImportFromShareableHandle) import_handle;
};
/// @throws Error when there is no driver, or one that is too old
[[nodiscard]] const Driver& driver();

/// Makes a device current for as long as it lives.
class OnDevice {
 public:
  explicit OnDevice(int device) noexcept {
    if (cudaGetDevice(&before_) != cudaSuccess || before_ == device) {
      before_ = -1;
    } else {
      cudaSetDevice(device);
    }
  }
  ~OnDevice() {
    if (before_ >= 0) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = -1;
};

/// Questions to the GPU that are no part of what another thread captures just now: while it lives, they may be asked.
class BesideCaptures {
 public:
  BesideCaptures() noexcept { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~BesideCaptures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  ///< then what it was before
};

}  // namespace tensorwire::cuda
