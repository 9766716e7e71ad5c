// All-reduce + residual + RMSNorm in one kernel: the residual has the bits of the separate steps, the norm is theirs up
// to the last place, and all ranks have the same.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "gpu/ranks.hpp"

namespace tensorwire::test {
namespace {

using collective::DType;
using collective::Op;

float float_of(std::uint16_t bf16) {
  const std::uint32_t bits = std::uint32_t{bf16} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::vector<std::uint16_t> elements_of(const std::vector<std::byte>& bytes) {
  std::vector<std::uint16_t> elements(bytes.size() / 2);
  std::memcpy(elements.data(), bytes.data(), bytes.size());
  return elements;
}

struct Shape {
  std::size_t rows, hidden;
};

/// How the norm is quantised besides: with one scale, or one for each row.
struct Quantisation {
  cuda::QuantType type;
  bool by_row;

  [[nodiscard]] float largest() const { return type == cuda::QuantType::kFloat8 ? 448.0F : 127.0F; }
  /// Rounded to nearest even, at most the largest. e4m3: three bits behind the first, exponents from -6 on.
  [[nodiscard]] float rounded(float value) const {
    int exponent = 0;
    std::frexp(value, &exponent);
    const float step = type == cuda::QuantType::kInt8 ? 1.0F : std::ldexp(1.0F, std::max(exponent - 1, -6) - 3);
    return std::clamp(std::nearbyint(value / step) * step, -largest(), largest());
  }
  [[nodiscard]] float value_of(std::byte bits) const {
    const auto byte = std::to_integer<std::uint8_t>(bits);
    if (type == cuda::QuantType::kInt8) return static_cast<float>(static_cast<std::int8_t>(byte));
    const int exponent = byte >> 3 & 15, fraction = byte & 7;
    const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                          : std::ldexp(8.0F + static_cast<float>(fraction), exponent - 10);
    return (byte & 0x80) != 0 ? -magnitude : magnitude;
  }
};

/// Tensors of a rank, made once.
class Step {
 public:
  Step(Rank& rank, Shape shape)
      : rank_(rank),
        shape_(shape),
        in_(bytes()),
        residual_(bytes()),
        weight_(shape.hidden * 2),
        norm_(bytes()),
        quantised_(bytes() / 2),
        scales_(shape.rows * sizeof(float)) {}

  void run(std::uint64_t seed, bool one_plus, const Quantisation& quantisation) {
    const std::size_t count = shape_.rows * shape_.hidden;
    write(in_, input_of(seed, rank_.rank, count, DType::kBfloat16));
    const std::vector<std::byte> residual = input_of(seed + 1, 0, count, DType::kBfloat16);  // alike on all ranks
    const std::vector<std::byte> weight = input_of(seed + 1, 1, shape_.hidden, DType::kBfloat16);
    write(residual_, residual);
    write(weight_, weight);
    cuda::AddNorm what;
    what.in = in_.data();
    what.residual_in = residual_.data();
    what.weight = weight_.data();
    what.residual_out = residual_.data();
    what.norm_out = norm_.data();
    what.rows = shape_.rows;
    what.hidden = shape_.hidden;
    what.one_plus = one_plus;
    what.quant_out = quantised_.data();
    what.quant_type = quantisation.type;
    auto* const scales = reinterpret_cast<float*>(scales_.data());
    constexpr float kScale = 0.0123F;  // some norms are beyond its largest
    expect_ok(cudaMemcpyAsync(scales, &kScale, sizeof kScale, cudaMemcpyHostToDevice, rank_.stream), "copy in");
    what.row_scales = quantisation.by_row ? scales : nullptr;
    what.quant_scale = quantisation.by_row ? nullptr : scales;
    ASSERT_EQ(rank_.communicator.all_reduce_add_norm(what, DType::kBfloat16, rank_.stream), cuda::Status::kOk);
    std::vector<std::byte> residual_out(bytes()), norm_out(bytes());
    rank_.read(residual_out, residual_.data());
    rank_.read(norm_out, norm_.data());
    ASSERT_EQ(rank_.communicator.failure_text(), "");
    const auto everyones = rank_.crossing.exchange(rank_.rank, norm_out);
    ASSERT_EQ(everyones[0], norm_out) << "rank " << rank_.rank;

    // The sum of two rounded values, rounded: the CPU's reduction of two operands.
    const std::vector<std::byte> sum = expected_of(seed, rank_.ranks, count, DType::kBfloat16, Op::kSum);
    const std::vector<std::byte> expected = sum_of_two(sum, residual);
    ASSERT_EQ(residual_out, expected) << shape_.rows << " x " << shape_.hidden;
    // Elements are compared by a tensor's first rows; of large ones bits of all ranks and of the residual say the rest.
    check_norm(elements_of(expected), elements_of(weight), elements_of(norm_out), one_plus);
    check_quantised(elements_of(norm_out), quantisation);
  }

 private:
  [[nodiscard]] std::size_t bytes() const { return shape_.rows * shape_.hidden * 2; }
  void write(const DeviceBytes& to, const std::vector<std::byte>& from) const {
    expect_ok(cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyHostToDevice, rank_.stream), "copy in");
    rank_.synchronize();
  }
  [[nodiscard]] std::size_t checked_rows() const { return std::min<std::size_t>(shape_.rows, 512); }

  void check_norm(const std::vector<std::uint16_t>& x, const std::vector<std::uint16_t>& weight,
                  const std::vector<std::uint16_t>& got, bool one_plus) const {
    for (std::size_t row = 0; row < checked_rows(); ++row) {
      double squares = 0;
      for (std::size_t i = 0; i < shape_.hidden; ++i) squares += std::pow(float_of(x[row * shape_.hidden + i]), 2);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(shape_.hidden) + 1e-6);
      for (std::size_t i = 0; i < shape_.hidden; ++i) {
        const std::size_t at = row * shape_.hidden + i;
        const double exact = float_of(x[at]) * scale * (float_of(weight[i]) + (one_plus ? 1.0 : 0.0));
        // Two roundings to 8 bits, and a half place for each.
        ASSERT_NEAR(float_of(got[at]), exact, std::abs(exact) / 128) << "row " << row << ", element " << i;
      }
    }
  }

  void check_quantised(const std::vector<std::uint16_t>& norm, const Quantisation& quantisation) const {
    std::vector<std::byte> got(quantised_.size()), scale_bytes(scales_.size());
    rank_.read(got, quantised_.data());
    rank_.read(scale_bytes, scales_.data());
    std::vector<float> scales(shape_.rows);
    std::memcpy(scales.data(), scale_bytes.data(), scale_bytes.size());
    for (std::size_t row = 0; row < checked_rows(); ++row) {
      const auto of_row = std::span(norm).subspan(row * shape_.hidden, shape_.hidden);
      float largest = 0;
      for (const std::uint16_t value : of_row) largest = std::max(largest, std::abs(float_of(value)));
      if (quantisation.by_row) {
        ASSERT_EQ(scales[row], largest / quantisation.largest()) << "row " << row;
      }
      const float scale = quantisation.by_row ? scales[row] : scales[0];
      for (std::size_t i = 0; i < shape_.hidden; ++i) {
        ASSERT_EQ(quantisation.value_of(got[row * shape_.hidden + i]),
                  quantisation.rounded(float_of(of_row[i]) / scale))
            << "row " << row << ", element " << i << ": " << float_of(of_row[i]) << " / " << scale;
      }
    }
  }

  Rank& rank_;
  Shape shape_;
  DeviceBytes in_, residual_, weight_, norm_, quantised_, scales_;
};

class AddNorm : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

TEST_P(AddNorm, GivesTheSeparateStepsResults) {
  as_ranks(GetParam().ranks, GetParam().options(), [](Rank& rank) {
    constexpr Shape kShapes[] = {{1, 8192}, {4, 4096}, {16, 8192}, {80, 6144}, {33, 1000}, {300, 8192}, {5, 8}};
    std::uint64_t seed = 1;  // not a multiple of three: no NaNs
    for (const Shape& shape : kShapes) {
      Step step(rank, shape);
      rank.crossing.wait();
      for (int round = 0; round < 3; ++round) {
        const auto type = seed % 2 == 0 ? cuda::QuantType::kFloat8 : cuda::QuantType::kInt8;
        step.run(seed, round == 1, {type, round != 2});
        seed += 3;
        if (::testing::Test::HasFatalFailure()) return;
      }
      rank.crossing.wait();
    }
  });
}

TEST_P(AddNorm, TensorsOfModels) {
  if (GetParam().scratch == cuda::Home::kHost) GTEST_SKIP() << "its sizes take long across PCIe";
  cuda::CommunicatorOptions options = GetParam().options();
  options.operation_bound = 20 * kSecond;  // ranks that share a CPU check what they got one after the other
  as_ranks(GetParam().ranks, options, [](Rank& rank) {
    std::uint64_t seed = 1;
    for (const TokenShape& tokens : token_shapes(rank.ranks)) {
      Step step(rank, {tokens.tokens, tokens.hidden});
      rank.crossing.wait();
      step.run(seed, seed % 2 == 0, {seed % 2 == 0 ? cuda::QuantType::kFloat8 : cuda::QuantType::kInt8, true});
      seed += 3;
      if (::testing::Test::HasFatalFailure()) return;
      rank.crossing.wait();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, AddNorm, ::testing::Values(Setting{2}, Setting{3}, Setting{4}, Setting{8}));
INSTANTIATE_TEST_SUITE_P(InHostMemory, AddNorm,
                         ::testing::Values(Setting{2, cuda::Home::kHost}, Setting{4, cuda::Home::kHost}));

TEST(AddNormAlone, AnAbsentRankEndsItWithinTheBound) {
  SKIP_WITHOUT_GPU();
  cuda::CommunicatorOptions options;
  options.operation_bound = 300 * kMillisecond;
  as_ranks(2, options, [](Rank& rank) {
    const DeviceBytes memory(16 * 8192 * 2);
    rank.crossing.wait();
    if (rank.rank == 0) {
      cuda::AddNorm what;
      what.in = what.residual_in = what.weight = what.residual_out = what.norm_out = memory.data();
      what.rows = 16;
      what.hidden = 8192;
      EXPECT_EQ(rank.communicator.all_reduce_add_norm(what, DType::kBfloat16, rank.stream), cuda::Status::kOk);
      EXPECT_EQ(rank.communicator.all_reduce_add_norm(what, DType::kBfloat16, rank.stream), cuda::Status::kOk);
      rank.synchronize();
      ASSERT_TRUE(rank.communicator.failure().has_value());
      EXPECT_EQ(rank.communicator.failure()->peer, 1);
    }
    rank.crossing.wait();
  });
}

}  // namespace
}  // namespace tensorwire::test
