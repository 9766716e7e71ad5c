// What follows the all-reduce of the fused operation where that goes by several kernels: one more, of this rank alone.
#pragma once

#include <vector>

#include "cuda/communicator.hpp"

namespace tensorwire::comm {

class LoneNorm {
 public:
  /// @throws Error
  explicit LoneNorm(int device) : alone_(options(device)) {}

  /// The sum has no other place than where the norm will be.
  [[nodiscard]] static bool knows(const cuda::AddNorm& what) noexcept { return what.norm_out != nullptr; }
  /// Of the sum that is in what.norm_out.
  cuda::Status launch(const cuda::AddNorm& what, collective::DType dtype, cuda::Stream stream) noexcept {
    cuda::AddNorm rest = what;
    rest.in = what.norm_out;
    return alone_.all_reduce_add_norm(rest, dtype, stream);
  }

 private:
  static cuda::CommunicatorOptions options(int device) {
    cuda::CommunicatorOptions made;
    made.device = device;
    made.exchange = [](std::span<const std::byte> mine) {
      return std::vector<cuda::Bytes>{cuda::Bytes(mine.begin(), mine.end())};
    };
    made.most_lanes = 64;
    made.host = 1;
    return made;
  }

  cuda::Communicator alone_;
};

}  // namespace tensorwire::comm
