// A kernel that does nothing for a while.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tensorwire::test {

/// So long by the GPU's wall clock.
void delay(std::uint64_t nanoseconds, cudaStream_t stream);
/// So that it need not be loaded while another kernel waits.
void load_delay();

}  // namespace tensorwire::test
