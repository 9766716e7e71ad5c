// From what a call says to the kernel compiled for it. Internal to the *.cu files.
#pragma once

#include <cuda_runtime.h>

#include "cuda/arithmetic.cuh"
#include "cuda/kernels.hpp"

namespace tensorwire::cuda {

/// cudaError_t of launching `kernel` with that grid. `cluster`: blocks that stand together, a divisor of the grid's.
inline int launch(const void* kernel, void** parameters, Grid grid, Stream stream, std::uint32_t cluster = 1) noexcept {
  cudaLaunchAttribute attributes[2]{};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid.lanes);
  config.blockDim = dim3(grid.threads);
  config.stream = stream;
  config.attrs = attributes;
  if (grid.early) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    cudaLaunchAttribute& together = attributes[config.numAttrs++];
    together.id = cudaLaunchAttributeClusterDimension;
    together.val.clusterDim.x = cluster;
    together.val.clusterDim.y = 1;
    together.val.clusterDim.z = 1;
  }
  return cudaLaunchKernelExC(&config, kernel, parameters);
}

/// Has the driver load a kernel now.
inline cudaError_t load(const void* kernel) noexcept {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel);
}

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
    return cuda::launch(kernel, parameters, grid, stream);
  }
  /// cudaSuccess, or the first error.
  [[nodiscard]] cudaError_t load() const noexcept {
    for (const auto& kernels : {two, any}) {
      for (int type = 0; type < 4; ++type) {
        if (kernels[type] == nullptr) continue;
        const cudaError_t error = cuda::load(reinterpret_cast<const void*>(kernels[type]));
        if (error != cudaSuccess) return error;
      }
    }
    return cudaSuccess;
  }
};

}  // namespace tensorwire::cuda
