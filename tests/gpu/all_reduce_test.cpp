// All-reduces of every type, operator, size and alignment, by every protocol, for 2, 3, 4 and 8 ranks on the GPUs that
// there are: the bits of the CPU's reduction, and not a byte beside them.
#include <algorithm>
#include <cstring>

#include "base/random.hpp"
#include "gpu/delay.hpp"
#include "gpu/ranks.hpp"

namespace tensorwire::test {
namespace {

using collective::DType;
using collective::Op;

struct Case {
  std::uint64_t seed;
  std::size_t count;
  DType dtype = DType::kBfloat16;
  Op op = Op::kSum;
  std::size_t in_offset = 0;  ///< in elements, from 256 bytes
  std::size_t out_offset = 0;
  bool in_place = false;
  std::optional<cuda::Shape> shape = {};  ///< else as it is chosen
};

std::string name_of(const Case& tried) {
  std::string name = std::string(collective::name_of(tried.dtype)) + " " + std::string(collective::name_of(tried.op)) +
                     " of " + std::to_string(tried.count) + ", offsets " + std::to_string(tried.in_offset) + " and " +
                     std::to_string(tried.out_offset) + (tried.in_place ? ", in place" : "");
  if (tried.shape) {
    name += ", " + std::string(cuda::name_of(tried.shape->protocol)) + " on " + std::to_string(tried.shape->lanes) +
            " lanes, pieces of " + std::to_string(tried.shape->piece_bytes);
  }
  return name;
}

constexpr std::size_t kGuard = 256;
constexpr std::byte kPoison{0xa5};

/// Runs cases in buffers that are made once: an allocation would wait for the other ranks' kernels.
class Bench {
 public:
  Bench(Rank& rank, std::size_t most_bytes) : rank_(rank), in_(most_bytes + 3 * kGuard), out_(in_.size()) {}

  void run(const Case& tried) {
    const std::size_t element = collective::element_bytes(tried.dtype);
    const std::size_t bytes = tried.count * element;
    std::byte* in = in_.data() + kGuard + tried.in_offset * element;
    std::byte* out = tried.in_place ? in : out_.data() + kGuard + tried.out_offset * element;
    const std::vector<std::byte> input = input_of(tried.seed, rank_.rank, tried.count, tried.dtype);
    expect_ok(cudaMemsetAsync(in_.data(), 0xa5, std::min(in_.size(), bytes + 3 * kGuard), rank_.stream), "memset");
    expect_ok(cudaMemsetAsync(out_.data(), 0xa5, std::min(out_.size(), bytes + 3 * kGuard), rank_.stream), "memset");
    expect_ok(cudaMemcpyAsync(in, input.data(), bytes, cudaMemcpyHostToDevice, rank_.stream), "copy in");
    const cuda::Status status =
        tried.shape
            ? rank_.communicator.all_reduce_as(*tried.shape, in, out, tried.count, tried.dtype, tried.op, rank_.stream)
            : rank_.communicator.all_reduce(in, out, tried.count, tried.dtype, tried.op, rank_.stream);
    ASSERT_EQ(status, cuda::Status::kOk) << name_of(tried) << rank_.communicator.failure_text();
    std::vector<std::byte> got(bytes + 2 * kGuard);
    const std::vector<std::byte> expected = expected_of(tried.seed, rank_.ranks, tried.count, tried.dtype, tried.op);
    rank_.read(got, out - kGuard);
    ASSERT_EQ(rank_.communicator.failure_text(), "") << name_of(tried);
    const auto wrong = std::mismatch(expected.begin(), expected.end(), got.begin() + kGuard);
    ASSERT_EQ(wrong.first - expected.begin(), static_cast<std::ptrdiff_t>(bytes))
        << "byte of the first difference, rank " << rank_.rank << " of " << rank_.ranks << ": " << name_of(tried);
    const auto poisoned = [](std::byte byte) { return byte == kPoison; };
    ASSERT_TRUE(std::all_of(got.begin(), got.begin() + kGuard, poisoned)) << name_of(tried);
    ASSERT_TRUE(std::all_of(got.end() - kGuard, got.end(), poisoned)) << name_of(tried);
  }

 private:
  Rank& rank_;
  DeviceBytes in_;
  DeviceBytes out_;
};

class AllReduce : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

TEST_P(AllReduce, EveryTypeOperatorAndCount) {
  as_ranks(GetParam().ranks, GetParam().options(), [](Rank& rank) {
    constexpr std::size_t kCounts[] = {1, 2, 3, 4, 5, 7, 8, 9, 17, 63, 511, 513, 4097, 12345, 100003, 1048579};
    Bench bench(rank, 4 * 1048579);
    std::uint64_t seed = 0;
    for (const DType dtype : collective::kDTypes) {
      for (const Op op : collective::kOps) {
        for (const std::size_t count : kCounts) {
          if (op != Op::kSum && count > 20000) continue;
          bench.run({.seed = ++seed, .count = count, .dtype = dtype, .op = op});
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

TEST_P(AllReduce, AnyAlignmentInAndOutOfPlace) {
  as_ranks(GetParam().ranks, GetParam().options(), [](Rank& rank) {
    Bench bench(rank, 1U << 20);
    Random random(7);
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      // Offsets differ from rank to rank, the rest does not.
      Case tried{.seed = seed, .count = 1 + random.below(seed % 10 == 0 ? 300000 : 5000)};
      tried.dtype = collective::kDTypes[random.below(4)];
      tried.count = std::min(tried.count, (1U << 20) / collective::element_bytes(tried.dtype));
      tried.in_place = random.chance(300000);
      tried.in_offset = (random.below(16) + static_cast<std::size_t>(rank.rank)) % 16;
      tried.out_offset = (random.below(16) + 3 * static_cast<std::size_t>(rank.rank)) % 16;
      bench.run(tried);
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST_P(AllReduce, ProtocolsAndShapesMayFollowEachOtherInAnyOrder) {
  as_ranks(GetParam().ranks, GetParam().options(), [](Rank& rank) {
    Bench bench(rank, 1U << 20);
    Random random(11);
    const cuda::Layout& layout = rank.communicator.layout();
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      Case tried{.seed = seed, .count = 1 + random.below(random.chance(500000) ? 400 : 60000)};
      cuda::Shape shape;
      constexpr cuda::Protocol kProtocols[] = {cuda::Protocol::kLines, cuda::Protocol::kWords, cuda::Protocol::kSlots};
      shape.protocol = kProtocols[random.below(3)];
      shape.lanes = 1 + random.below(layout.lanes);
      shape.threads = 64 * (1 + random.below(8));
      shape.piece_bytes = 16 * (1 + random.below(random.chance(500000) ? 64 : layout.slot_bytes / 16));
      if (!cuda::fits(shape, tried.count * 2, tried.dtype, layout)) {
        shape.protocol = cuda::Protocol::kSlots;
      }
      tried.in_place = random.chance(300000);
      tried.shape = shape;
      if (random.chance(200000)) delay(random.below(50000), rank.stream);  // all ranks draw alike
      if (rank.rank == static_cast<int>(seed) % rank.ranks) delay(30000, rank.stream);
      bench.run(tried);
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST_P(AllReduce, Large) {
  as_ranks(GetParam().ranks, GetParam().options(), [](Rank& rank) {
    const std::size_t most = std::size_t{64} << 20;
    Bench bench(rank, most);
    bench.run({.seed = 1, .count = most / 2});
    bench.run({.seed = 2, .count = (most / 2 - 77777) / 3, .in_offset = 1, .in_place = true});
  });
}

TEST_P(AllReduce, TensorsOfModels) {
  if (GetParam().scratch == cuda::Home::kHost) GTEST_SKIP() << "its sizes take long across PCIe";
  as_ranks(GetParam().ranks, GetParam().options(), [](Rank& rank) {
    const std::vector<TokenShape> shapes = token_shapes(rank.ranks);
    std::size_t most = 0;
    for (const TokenShape& shape : shapes) most = std::max(most, shape.tokens * shape.hidden);
    Bench bench(rank, most * 2);
    std::uint64_t seed = 0;
    for (const TokenShape& shape : shapes) {
      bench.run({.seed = ++seed, .count = shape.tokens * shape.hidden, .in_place = seed % 2 == 0});
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllReduce, ::testing::Values(Setting{2}, Setting{3}, Setting{4}, Setting{8}));
INSTANTIATE_TEST_SUITE_P(InHostMemory, AllReduce,
                         ::testing::Values(Setting{2, cuda::Home::kHost}, Setting{4, cuda::Home::kHost}));

/// With flags of 8 bits: first a large tensor, then small ones until the large one's flag comes up again while a peer
/// is late. Lines of the large one that still bore that flag would be taken for new ones.
TEST(LineFlags, AreRenewedBeforeTheyWrapAround) {
  SKIP_WITHOUT_GPU();
  cuda::CommunicatorOptions options;
  options.operation_bound = 5 * kSecond;
  options.flag_bits = 8;
  as_ranks(2, options, [](Rank& rank) {
    Bench bench(rank, 8192);
    const cuda::Shape one_lane{cuda::Protocol::kLines, 1, 512, 0};
    for (std::uint64_t operation = 1; operation <= 3 * 256 + 1; ++operation) {
      const bool large = operation % 256 == 1;
      if (large && operation > 1 && rank.rank == 1) delay(2'000'000, rank.stream);
      bench.run({.seed = operation, .count = large ? 4096U : 3U, .shape = one_lane});
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST(Arguments, ThatMakeNoSenseAreRefused) {
  SKIP_WITHOUT_GPU();
  as_ranks(2, {}, [](Rank& rank) {
    const DeviceBytes memory(4096);
    cuda::Communicator& communicator = rank.communicator;
    const auto reduce = [&](std::byte* at, DType dtype, Op op) {
      return communicator.all_reduce(at, at, 8, dtype, op, rank.stream);
    };
    EXPECT_EQ(reduce(memory.data() + 1, DType::kBfloat16, Op::kSum), cuda::Status::kInvalid);
    EXPECT_EQ(reduce(memory.data() + 2, DType::kFloat32, Op::kSum), cuda::Status::kInvalid);
    EXPECT_EQ(reduce(memory.data(), static_cast<DType>(9), Op::kSum), cuda::Status::kInvalid);
    EXPECT_EQ(reduce(memory.data(), DType::kFloat32, static_cast<Op>(9)), cuda::Status::kInvalid);
    cuda::Shape shape{cuda::Protocol::kLines, communicator.layout().lanes + 1, 512, 0};
    EXPECT_EQ(communicator.all_reduce_as(shape, memory.data(), memory.data(), 8, DType::kInt32, Op::kSum, rank.stream),
              cuda::Status::kInvalid);
    EXPECT_EQ(communicator.all_reduce(memory.data(), memory.data(), 0, DType::kInt32, Op::kSum, rank.stream),
              cuda::Status::kOk);
  });
}

}  // namespace
}  // namespace tensorwire::test
