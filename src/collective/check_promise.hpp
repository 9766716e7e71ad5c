// What a collective promises, as facts about a rank's user memory: how large its tensors are, and which contributions
// stand where in its output. Internal to check*.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collective/check_memory.hpp"

namespace tensorwire::collective {

/// A user's tensor of one rank, as far as a program may touch it.
struct UserTensor {
  std::uint64_t bytes = 0;
  std::uint64_t in_place_offset = 0;  ///< where it begins in the larger of input and output, if the two share memory
};
[[nodiscard]] UserTensor user_tensor(const Shape& shape, const BuildOptions& build, std::uint32_t rank, bool output);

/// Bytes [begin, end) of an output are bytes from `source` on of the input of rank `from`, or of the sum of all ranks'.
struct Promise {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t source = 0;
  bool is_sum = false;
  std::uint32_t from = 0;
};
[[nodiscard]] std::vector<Promise> promises(const Shape& shape, const BuildOptions& build, std::uint32_t rank);

/// Why what was computed is not what was promised: contributions that are missing, come twice or from elsewhere, or are
/// added in another order than the algorithm's.
[[nodiscard]] std::optional<Verdict> find_broken_promise(const HappensBefore& graph, SymbolicExecution& run,
                                                         const CheckOptions& options);

}  // namespace tensorwire::collective
