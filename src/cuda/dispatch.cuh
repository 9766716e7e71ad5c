// From what a call says to the kernel compiled for it. Internal to the *.cu files.
#pragma once

#include <cuda_runtime.h>

#include "cuda/arithmetic.cuh"
#include "cuda/kernels.hpp"

namespace tensorwire::cuda {

using AllReduceKernel = void (*)(AllReduceJob);

/// A kernel for each element type, for two ranks and for any number; null where there is none.
struct AllReduceKernels {
  AllReduceKernel two[4];
  AllReduceKernel any[4];

  [[nodiscard]] int launch(const AllReduceJob& job, collective::DType dtype, Grid grid, Stream stream) const noexcept {
    const auto type = static_cast<std::size_t>(dtype) - 1;
    AllReduceJob parameter = job;
    void* parameters[] = {&parameter};
    const auto* kernel = reinterpret_cast<const void*>(job.peers.layout.ranks == 2 ? two[type] : any[type]);
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(grid.lanes);
    config.blockDim = dim3(grid.threads);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = grid.early ? 1 : 0;
    return cudaLaunchKernelExC(&config, kernel, parameters);
  }
  /// cudaSuccess, or the first error.
  [[nodiscard]] cudaError_t load() const noexcept {
    for (const auto& kernels : {two, any}) {
      for (int type = 0; type < 4; ++type) {
        if (kernels[type] == nullptr) continue;
        cudaFuncAttributes attributes;
        const cudaError_t error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernels[type]));
        if (error != cudaSuccess) return error;
      }
    }
    return cudaSuccess;
  }
};

}  // namespace tensorwire::cuda
