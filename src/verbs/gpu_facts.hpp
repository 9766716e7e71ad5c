// What CUDA, the kernel and sysfs say of a GPU that a NIC is to reach. Reads, and judges nothing (gpu_way.hpp does).
#pragma once

#include "base/cuda_driver.hpp"
#include "verbs/gpu_way.hpp"

namespace tensorwire::verbs {

/// `ordinal` as this process counts. What cannot be read stays empty.
[[nodiscard]] GpuFacts read_gpu_facts(const CudaDriver& driver, int ordinal);

}  // namespace tensorwire::verbs
