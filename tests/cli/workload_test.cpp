#include "cli/bench/workload.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "collective/reduce.hpp"

namespace tensorwire::cli {
namespace {

using collective::DType;

constexpr std::array kDTypes{DType::kFloat32, DType::kFloat16, DType::kBfloat16};
constexpr std::size_t kCount = 1000;

std::vector<std::byte> input(DType dtype, std::uint32_t rank, std::uint64_t iteration) {
  std::vector<std::byte> bytes(kCount * collective::element_bytes(dtype));
  fill_input(dtype, rank, iteration, bytes);
  return bytes;
}

/// What an all-reduce of `ranks` ranks leaves behind.
std::vector<std::byte> reduced(DType dtype, std::uint32_t ranks, std::uint64_t iteration) {
  std::vector<std::vector<std::byte>> inputs;
  std::vector<const std::byte*> operands;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) inputs.push_back(input(dtype, rank, iteration));
  for (const auto& bytes : inputs) operands.push_back(bytes.data());
  std::vector<std::byte> out(inputs.front().size());
  collective::reduce({dtype, collective::Op::kSum}, operands, out.data(), nullptr, kCount);
  return out;
}

TEST(Workload, InputDependsOnRankAndIterationAndOnNothingElse) {
  for (const DType dtype : kDTypes) {
    EXPECT_EQ(input(dtype, 1, 5), input(dtype, 1, 5));
    EXPECT_NE(input(dtype, 1, 5), input(dtype, 2, 5));
    EXPECT_NE(input(dtype, 1, 5), input(dtype, 1, 6));
  }
}

TEST(Workload, MagnitudesAreBetweenOneHalfAndTwo) {
  const auto bytes = input(DType::kFloat32, 3, 9);
  bool negative = false;
  for (std::size_t i = 0; i < kCount; ++i) {
    float value = 0;
    std::memcpy(&value, bytes.data() + 4 * i, 4);
    EXPECT_GE(std::abs(value), 0.5F);
    EXPECT_LT(std::abs(value), 2.0F);
    negative = negative || value < 0;
  }
  EXPECT_TRUE(negative);
}

TEST(Workload, ARightSumHasNoWrongElement) {
  for (const DType dtype : kDTypes) {
    for (const std::uint32_t ranks : {1U, 2U, 3U, 8U})
      EXPECT_EQ(count_wrong(dtype, ranks, 4, reduced(dtype, ranks, 4)), 0U);
  }
}

TEST(Workload, AFewUlpsTooManyAreWrong) {
  for (const DType dtype : kDTypes) {
    auto result = reduced(dtype, 2, 4);
    std::size_t changed = 0;
    for (std::size_t i = 0; i < kCount; i += 10, ++changed) {  // the fourth bit of a little-endian element: 8 ulps
      std::byte& low = result[i * collective::element_bytes(dtype)];
      low = low ^ std::byte{8};
    }
    EXPECT_GT(count_wrong(dtype, 2, 4, result), changed / 2);
  }
}

TEST(Workload, AMissingContributionIsWrong) {
  for (const DType dtype : kDTypes) EXPECT_EQ(count_wrong(dtype, 3, 4, reduced(dtype, 2, 4)), kCount);
}

TEST(Workload, TheHashSeesOneBit) {
  auto bytes = input(DType::kFloat16, 0, 0);
  const std::uint32_t before = result_hash(bytes);
  bytes[777] ^= std::byte{1};
  EXPECT_NE(result_hash(bytes), before);
}

}  // namespace
}  // namespace tensorwire::cli
