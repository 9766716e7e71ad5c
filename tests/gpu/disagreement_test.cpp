// Ranks that ask for different things: of another size, they would wait for each other until the bound; of another
// type, operator or kind at equal size, they would sum what is no number. Either is told with both requests, by the
// next operation at the latest.
#include <chrono>

#include "gpu/delay.hpp"
#include "gpu/ranks.hpp"

namespace tensorwire::test {
namespace {

using collective::DType;
using collective::Op;

/// What the odd rank asks for where the others make an all-reduce of 4096 bf16 elements, by their sum.
struct Oddity {
  const char* name;
  DType dtype = DType::kBfloat16;
  Op op = Op::kSum;
  const char* asked;  ///< as the line has it
};

class Disagreement : public ::testing::TestWithParam<std::tuple<int, Oddity>> {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

TEST_P(Disagreement, AtEqualSizeIsToldWithBothRequests) {
  const auto& [ranks, oddity] = GetParam();
  cuda::CommunicatorOptions options;
  options.operation_bound = 2 * kSecond;
  as_ranks(ranks, options, [&oddity = oddity](Rank& rank) {
    constexpr std::size_t kCount = 4096;
    const DeviceBytes memory(1U << 20);
    const bool is_odd = rank.rank == 1;
    rank.crossing.wait();
    const auto alike = [&] {
      return rank.communicator.all_reduce(memory.data(), memory.data(), kCount, DType::kBfloat16, Op::kSum,
                                          rank.stream);
    };
    for (int i = 0; i < 5; ++i) ASSERT_EQ(alike(), cuda::Status::kOk);
    rank.synchronize();
    ASSERT_EQ(rank.communicator.failure_text(), "");
    rank.crossing.wait();
    const auto began = std::chrono::steady_clock::now();
    if (!is_odd) {
      ASSERT_EQ(alike(), cuda::Status::kOk);
    } else {
      ASSERT_EQ(
          rank.communicator.all_reduce(memory.data(), memory.data(), kCount, oddity.dtype, oddity.op, rank.stream),
          cuda::Status::kOk);
    }
    for (int i = 0; i < 3; ++i) EXPECT_NE(alike(), cuda::Status::kInvalid);
    rank.synchronize();
    // What is told to one rank the others hear while they wait, at the latest.
    while (!rank.communicator.failure() && std::chrono::steady_clock::now() < began + std::chrono::seconds(10)) {
      EXPECT_NE(alike(), cuda::Status::kInvalid);
      rank.synchronize();
    }
    ASSERT_TRUE(rank.communicator.failure());
    const std::string text = rank.communicator.failure_text();
    EXPECT_EQ(rank.communicator.failure()->kind, cuda::FailureKind::kDisagreement) << text;
    EXPECT_NE(text.find("disagree on collective 6"), std::string::npos) << text;
    EXPECT_NE(text.find("for all-reduce (sum), 8192 bytes of bf16"), std::string::npos) << text;
    EXPECT_NE(text.find(oddity.asked), std::string::npos) << text;
    rank.crossing.wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Disagreement,
                         ::testing::Combine(::testing::Values(2, 3),
                                            ::testing::Values(Oddity{"Type", DType::kFloat16, Op::kSum,
                                                                     "for all-reduce (sum), 8192 bytes of fp16"},
                                                              Oddity{"Operator", DType::kBfloat16, Op::kMax,
                                                                     "for all-reduce (max), 8192 bytes of bf16"})),
                         [](const auto& tried) {
                           return std::string(std::get<1>(tried.param).name) + "Of" +
                                  std::to_string(std::get<0>(tried.param));
                         });

/// Of other kinds of operations nothing is exchanged that both would wait for: the rank that comes later sees at once
/// that it has no business here.
TEST(DisagreementOnTheKind, IsToldLongBeforeTheBound) {
  SKIP_WITHOUT_GPU();
  cuda::CommunicatorOptions options;
  options.operation_bound = 20 * kSecond;
  as_ranks(2, options, [](Rank& rank) {
    const DeviceBytes memory(1U << 20);
    rank.crossing.wait();
    const auto began = std::chrono::steady_clock::now();
    if (rank.rank == 0) {
      ASSERT_EQ(
          rank.communicator.all_reduce(memory.data(), memory.data(), 4096, DType::kBfloat16, Op::kSum, rank.stream),
          cuda::Status::kOk);
    } else {
      delay(20'000'000, rank.stream);
      ASSERT_EQ(rank.communicator.all_gather(memory.data() + 65536, memory.data(), 1024, DType::kFloat32, rank.stream),
                cuda::Status::kOk);
    }
    rank.synchronize();
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
    const std::string text = rank.communicator.failure_text();
    EXPECT_NE(text.find("for all-reduce (sum), 8192 bytes of bf16"), std::string::npos) << text;
    EXPECT_NE(text.find("for all-gather, 8192 bytes of fp32"), std::string::npos) << text;
    rank.crossing.wait();
  });
}

/// Ranks that make calls of different sizes all end, by what they were told or by the bound.
TEST(DisagreementOnTheSize, EndsWithinTheBound) {
  SKIP_WITHOUT_GPU();
  cuda::CommunicatorOptions options;
  options.operation_bound = 300 * kMillisecond;
  as_ranks(3, options, [](Rank& rank) {
    const DeviceBytes memory(1U << 20);
    rank.crossing.wait();
    const auto began = std::chrono::steady_clock::now();
    for (const std::size_t count : {rank.rank == 1 ? std::size_t{8} : std::size_t{20000}, std::size_t{20000}}) {
      EXPECT_NE(
          rank.communicator.all_reduce(memory.data(), memory.data(), count, DType::kBfloat16, Op::kSum, rank.stream),
          cuda::Status::kInvalid);
    }
    rank.synchronize();
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(900));
    EXPECT_TRUE(rank.communicator.failure().has_value());
    rank.crossing.wait();
  });
}

/// Messages, and all-to-alls of uneven blocks, need not be alike, nor as many on all ranks.
TEST(NoDisagreement, IsWhatRanksNeedNotDoAlike) {
  SKIP_WITHOUT_GPU();
  as_ranks(3, {}, [](Rank& rank) {
    const DeviceBytes memory(1U << 20);
    rank.crossing.wait();
    for (int round = 0; round < 20; ++round) {
      if (rank.rank < 2) {
        const cuda::Message message{rank.rank == 0, 1 - rank.rank, memory.data(), 2048};
        for (int i = 0; i <= round % 3; ++i) {
          ASSERT_EQ(rank.communicator.exchange(std::span(&message, 1), rank.stream), cuda::Status::kOk);
        }
      }
      const std::vector<std::uint64_t> counts{0, 8, 0, 16, 0, 0, 0, 24, 0};
      ASSERT_EQ(rank.communicator.all_to_all(memory.data() + 4096, memory.data() + 65536, 0, counts, DType::kFloat32,
                                             rank.stream),
                cuda::Status::kOk);
      ASSERT_EQ(rank.communicator.broadcast(memory.data(), memory.data(), 100, DType::kFloat32, round % 3, rank.stream),
                cuda::Status::kOk);
      ASSERT_EQ(rank.communicator.all_reduce(memory.data(), memory.data(), 4096, DType::kInt32, Op::kMax, rank.stream),
                cuda::Status::kOk);
    }
    rank.synchronize();
    EXPECT_EQ(rank.communicator.failure_text(), "");
    rank.crossing.wait();
  });
}

}  // namespace
}  // namespace tensorwire::test
