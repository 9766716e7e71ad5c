// Waits for a word of host memory by the stream itself, where CUDA has such (stream memory operations) and takes them
// into graphs: no kernel holds multiprocessors meanwhile.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <string>

#include "cuda/job.hpp"

namespace tensorwire::cuda {

class StreamGates {
 public:
  /// Tries it on the current GPU, with a word, as mapped there, that is 1: eagerly and in a graph. Empty, or why it
  /// cannot be done.
  [[nodiscard]] std::string open(std::uint64_t word);
  /// What follows on the stream is done when all these words, as mapped in the GPU, are 1. Returns a CUresult.
  [[nodiscard]] int wait(std::span<const std::uint64_t> words, Stream stream) const noexcept;

 private:
  decltype(&cuStreamBatchMemOp) batch_ = nullptr;
};

}  // namespace tensorwire::cuda
