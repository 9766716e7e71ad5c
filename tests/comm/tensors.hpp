// Seeded input tensors and the sums that they must give, to the bit.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "collective/reduce.hpp"

namespace tensorwire::comm {

using collective::DType;

inline std::vector<std::byte> input_of(std::uint64_t seed, int rank, std::size_t count, DType dtype) {
  std::vector<std::byte> bytes(count * collective::element_bytes(dtype));
  Random random{mix64(seed) + static_cast<std::uint64_t>(rank)};
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(bytes.data() + i, &word, 8);
  }
  for (; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random.next());
  return bytes;
}

inline std::vector<std::byte> sum_of(std::uint64_t seed, int ranks, std::size_t count, DType dtype) {
  std::vector<std::vector<std::byte>> inputs;
  std::vector<const std::byte*> operands;
  for (int rank = 0; rank < ranks; ++rank) inputs.push_back(input_of(seed, rank, count, dtype));
  for (const auto& input : inputs) operands.push_back(input.data());
  if (ranks == 1) return inputs[0];
  std::vector<std::byte> sum(inputs[0].size());
  collective::reduce({dtype}, operands, sum.data(), nullptr, count);
  return sum;
}

}  // namespace tensorwire::comm
