// What a test may ask of the pretended libcuda.so.1 beside what CUDA has. Found by dlsym: the test links nothing of it.
#pragma once

#include <cstddef>

namespace tensorwire::test {

inline constexpr int kPretendedGpus = 2;

struct PretendedCuda {
  /// Allocates as cudaMallocAsync would.
  unsigned long long (*allocate_from_pool)(std::size_t bytes);
  void (*write)(unsigned long long address, const void* from, std::size_t bytes);
  void (*read)(unsigned long long address, void* to, std::size_t bytes);
  /// Whether DMA-BUFs are exported.
  void (*export_dmabufs)(int yes);
  /// Calls that were made without the relaxed capture mode or without a context.
  int (*careless_calls)();
  /// Copies that ran so far.
  int (*copies)();
};

}  // namespace tensorwire::test
