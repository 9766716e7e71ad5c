// What is made of messages: all-gather, reduce-scatter, broadcast, all-to-all, send and receive, of all sizes and
// alignments, for 2, 3, 4 and 8 ranks, in place and apart, eagerly and in graphs: the right bytes, and not one beside
// them.
#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/random.hpp"
#include "gpu/delay.hpp"
#include "gpu/ranks.hpp"

namespace tensorwire::test {
namespace {

using collective::DType;
using collective::Op;

using Bytes = std::vector<std::byte>;

constexpr std::size_t kRoom = 256;  ///< before and behind a tensor
constexpr std::byte kUntouched{0xa5};

void append(Bytes& to, const Bytes& more) { to.insert(to.end(), more.begin(), more.end()); }
Bytes part_of(const Bytes& all, std::size_t first, std::size_t bytes) {
  return {all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(first + bytes)};
}

/// Two buffers of a rank, made once, and the operation that is tried on them.
class Tried {
 public:
  Tried(Rank& rank, std::size_t most) : rank_(rank), in_(most + 3 * kRoom), out_(most + 3 * kRoom) {}

  /// Buffers lie so many bytes behind a 256-byte boundary; in place, the input lies in the output, or the other way
  /// round: `shift` bytes behind its beginning.
  struct Case {
    std::string name;
    Bytes input, expected;
    std::size_t in_offset = 0, out_offset = 0;
    bool in_place = false;
    std::ptrdiff_t shift = 0;
    std::function<cuda::Status(const std::byte* in, std::byte* out)> call;
  };

  void run(const Case& tried) {
    prepare(tried);
    ASSERT_EQ(tried.call(at_in_, at_out_), cuda::Status::kOk) << tried.name;
    check(tried);
  }
  /// The same by a graph, launched twice.
  void replay(const Case& tried) {
    prepare(tried);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    expect_ok(cudaStreamBeginCapture(rank_.stream, cudaStreamCaptureModeThreadLocal), "begin capture");
    EXPECT_EQ(tried.call(at_in_, at_out_), cuda::Status::kOk) << tried.name;
    expect_ok(cudaStreamEndCapture(rank_.stream, &graph), "end capture");
    expect_ok(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
    for (int i = 0; i < 2 && !::testing::Test::HasFatalFailure(); ++i) {
      if (i > 0) prepare(tried);
      expect_ok(cudaGraphLaunch(executable, rank_.stream), "launch");
      check(tried);
    }
    expect_ok(cudaGraphExecDestroy(executable), "destroy");
    expect_ok(cudaGraphDestroy(graph), "destroy");
  }

 private:
  void prepare(const Case& tried) {
    std::byte* const in = in_.data() + kRoom + tried.in_offset;
    at_out_ = out_.data() + kRoom + tried.out_offset;
    at_in_ = tried.in_place ? at_out_ + tried.shift : in;
    expect_ok(cudaMemsetAsync(out_.data(), 0xa5, out_.size(), rank_.stream), "memset");
    expect_ok(cudaMemcpyAsync(at_in_, tried.input.data(), tried.input.size(), cudaMemcpyHostToDevice, rank_.stream),
              "copy in");
    rank_.synchronize();
  }
  void check(const Case& tried) {
    Bytes got(tried.expected.size() + 2 * kRoom);
    rank_.read(got, at_out_ - kRoom);
    ASSERT_EQ(rank_.communicator.failure_text(), "") << tried.name;
    const auto wrong = std::mismatch(tried.expected.begin(), tried.expected.end(), got.begin() + kRoom);
    ASSERT_TRUE(wrong.first == tried.expected.end())
        << tried.name << ", rank " << rank_.rank << " of " << rank_.ranks << ": byte "
        << wrong.first - tried.expected.begin() << " of " << tried.expected.size();
    if (tried.in_place) return;
    const auto untouched = [](std::byte byte) { return byte == kUntouched; };
    ASSERT_TRUE(std::all_of(got.begin(), got.begin() + kRoom, untouched)) << tried.name;
    ASSERT_TRUE(std::all_of(got.end() - kRoom, got.end(), untouched)) << tried.name;
  }

  Rank& rank_;
  DeviceBytes in_, out_;
  std::byte* at_in_ = nullptr;
  std::byte* at_out_ = nullptr;
};

/// The cases of a rank: names, what goes in, what must come out.
class Cases {
 public:
  explicit Cases(Rank& rank) : rank_(rank) {}

  struct Size {
    std::uint64_t seed;
    std::size_t count;
    DType dtype;
    bool in_place;
  };

  [[nodiscard]] Tried::Case all_gather(const Size& size) const {
    Tried::Case made = begin("all-gather", size);
    made.input = input_of(size.seed, rank_.rank, size.count, size.dtype);
    for (int rank = 0; rank < rank_.ranks; ++rank)
      append(made.expected, input_of(size.seed, rank, size.count, size.dtype));
    made.shift = static_cast<std::ptrdiff_t>(made.input.size()) * rank_.rank;
    made.call = [this, size](const std::byte* in, std::byte* out) {
      return rank_.communicator.all_gather(in, out, size.count, size.dtype, rank_.stream);
    };
    return made;
  }
  [[nodiscard]] Tried::Case reduce_scatter(const Size& size, Op op) const {
    Tried::Case made = begin("reduce-scatter", size);
    const std::size_t all = size.count * static_cast<std::size_t>(rank_.ranks);
    const std::size_t bytes = size.count * collective::element_bytes(size.dtype);
    made.input = input_of(size.seed, rank_.rank, all, size.dtype);
    made.expected = part_of(expected_of(size.seed, rank_.ranks, all, size.dtype, op),
                            bytes * static_cast<std::size_t>(rank_.rank), bytes);
    made.in_place = false;
    made.call = [this, size, op](const std::byte* in, std::byte* out) {
      return rank_.communicator.reduce_scatter(in, out, size.count, size.dtype, op, rank_.stream);
    };
    return made;
  }
  [[nodiscard]] Tried::Case broadcast(const Size& size, int root) const {
    Tried::Case made = begin("broadcast from " + std::to_string(root), size);
    made.input = input_of(size.seed, rank_.rank, size.count, size.dtype);
    made.expected = input_of(size.seed, root, size.count, size.dtype);
    made.call = [this, size, root](const std::byte* in, std::byte* out) {
      return rank_.communicator.broadcast(in, out, size.count, size.dtype, root, rank_.stream);
    };
    return made;
  }
  [[nodiscard]] Tried::Case all_to_all(const Size& size) const {
    Tried::Case made = begin("all-to-all", size);
    const auto ranks = static_cast<std::size_t>(rank_.ranks);
    const std::size_t bytes = size.count * collective::element_bytes(size.dtype);
    made.input = input_of(size.seed, rank_.rank, size.count * ranks, size.dtype);
    for (int rank = 0; rank < rank_.ranks; ++rank) {
      append(made.expected, part_of(input_of(size.seed, rank, size.count * ranks, size.dtype),
                                    bytes * static_cast<std::size_t>(rank_.rank), bytes));
    }
    made.call = [this, size](const std::byte* in, std::byte* out) {
      return rank_.communicator.all_to_all(in, out, size.count, {}, size.dtype, rank_.stream);
    };
    return made;
  }
  /// Blocks of different sizes, some of them empty.
  [[nodiscard]] Tried::Case all_to_all_v(const Size& size) const {
    Tried::Case made = begin("all-to-all of different blocks", size);
    made.in_place = false;
    const auto ranks = static_cast<std::size_t>(rank_.ranks);
    const auto me = static_cast<std::size_t>(rank_.rank);
    std::vector<std::uint64_t> counts(ranks * ranks);
    Random random(size.seed);
    for (std::uint64_t& count : counts) {
      count = random.chance(200000) ? 0 : random.below(static_cast<std::uint32_t>(size.count) + 1);
    }
    const std::size_t element = collective::element_bytes(size.dtype);
    const auto row = [&](std::size_t rank) { return std::span(counts).subspan(rank * ranks, ranks); };
    const auto tensor_of = [&](std::size_t rank) {
      const auto sizes = row(rank);
      return input_of(size.seed, static_cast<int>(rank), std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}),
                      size.dtype);
    };
    made.input = tensor_of(me);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto before = row(rank).first(me);
      append(made.expected,
             part_of(tensor_of(rank), std::accumulate(before.begin(), before.end(), std::size_t{0}) * element,
                     row(rank)[me] * element));
    }
    made.call = [this, size, counts](const std::byte* in, std::byte* out) {
      return rank_.communicator.all_to_all(in, out, size.count, counts, size.dtype, rank_.stream);
    };
    return made;
  }
  /// Round the ring both ways and to itself, two messages each.
  [[nodiscard]] Tried::Case messages(const Size& size) const {
    Tried::Case made = begin("messages", size);
    made.in_place = false;
    const int ranks = rank_.ranks;
    const std::size_t bytes = size.count * collective::element_bytes(size.dtype);
    made.input = input_of(size.seed, rank_.rank, 2 * size.count, size.dtype);
    const int left = (rank_.rank + ranks - 1) % ranks;
    for (const int from : {left, left, rank_.rank}) {
      append(made.expected, part_of(input_of(size.seed, from, 2 * size.count, size.dtype),
                                    made.expected.size() == bytes ? bytes : 0, bytes));
    }
    made.call = [this, bytes, left](const std::byte* in, std::byte* out) {
      const int right = (rank_.rank + 1) % rank_.ranks;
      auto* from = const_cast<std::byte*>(in);
      const cuda::Message all[] = {{true, right, from, bytes},         {false, left, out, bytes},
                                   {true, right, from + bytes, bytes}, {false, left, out + bytes, bytes},
                                   {true, rank_.rank, from, bytes},    {false, rank_.rank, out + 2 * bytes, bytes}};
      return rank_.communicator.exchange(all, rank_.stream);
    };
    return made;
  }

 private:
  [[nodiscard]] Tried::Case begin(const std::string& what, const Size& size) const {
    Tried::Case made;
    made.name = what + " of " + std::to_string(size.count) + " " + std::string(collective::name_of(size.dtype)) +
                (size.in_place ? ", in place" : "") + ", seed " + std::to_string(size.seed);
    made.in_place = size.in_place;
    // Offsets differ from rank to rank.
    const std::size_t element = collective::element_bytes(size.dtype);
    Random random(size.seed * 8 + static_cast<std::uint64_t>(rank_.rank));
    if (size.seed % 2 == 0) {
      made.in_offset = random.below(16) * element;
      made.out_offset = random.below(16) * element;
    }
    return made;
  }

  Rank& rank_;
};

class Messages : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

constexpr std::size_t kMostBytes = 16U << 20;

TEST_P(Messages, OfAllSizesArriveWhole) {
  as_ranks(GetParam().ranks, GetParam().options(), [](Rank& rank) {
    const Cases cases(rank);
    Tried tried(rank, kMostBytes);
    rank.crossing.wait();
    std::uint64_t seed = 0;
    for (const std::size_t count : {1U, 2U, 7U, 8U, 65U, 513U, 4097U, 30000U, 65536U, 200003U}) {
      for (const bool in_place : {false, true}) {
        const Cases::Size size{++seed, count, collective::kDTypes[seed % 4], in_place};
        tried.run(cases.all_gather(size));
        tried.run(cases.broadcast(size, static_cast<int>(seed) % rank.ranks));
        tried.run(cases.all_to_all(size));
        tried.run(cases.all_to_all_v(size));
        tried.run(cases.messages(size));
        for (const Op op : collective::kOps) tried.run(cases.reduce_scatter(size, op));
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

TEST_P(Messages, MixWithEachOtherInGraphsAndWithLateRanks) {
  cuda::CommunicatorOptions small_flags = GetParam().options();
  small_flags.flag_bits = 8;  // lines' flags come up again, many times
  as_ranks(GetParam().ranks, small_flags, [](Rank& rank) {
    const Cases cases(rank);
    Tried tried(rank, kMostBytes);
    rank.crossing.wait();
    Random random(11);
    for (std::uint64_t seed = 1000; seed < 1400; ++seed) {
      const Cases::Size size{seed, 1 + random.below(seed % 8 == 0 ? 100000 : 3000),
                             collective::kDTypes[random.below(4)], random.chance(300000)};
      const std::uint32_t kind = random.below(6);
      const bool captured = random.chance(200000);
      const bool late = random.chance(200000);
      const auto latecomer = static_cast<int>(random.below(static_cast<std::uint32_t>(rank.ranks)));
      const auto root = static_cast<int>(random.below(static_cast<std::uint32_t>(rank.ranks)));
      const Tried::Case one = kind == 0   ? cases.all_gather(size)
                              : kind == 1 ? cases.reduce_scatter(size, Op::kSum)
                              : kind == 2 ? cases.broadcast(size, root)
                              : kind == 3 ? cases.all_to_all(size)
                              : kind == 4 ? cases.all_to_all_v(size)
                                          : cases.messages(size);
      if (late && rank.rank == latecomer) delay(200'000, rank.stream);
      captured ? tried.replay(one) : tried.run(one);
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

/// A message needs its two ranks only: the last one receives nothing, and no rank waits for it.
TEST_P(Messages, NeedNothingOfThirdRanks) {
  as_ranks(GetParam().ranks, GetParam().options(), [](Rank& rank) {
    const DeviceBytes memory(4U << 20);
    rank.crossing.wait();
    for (const std::size_t bytes : {64U, 100000U, 4U << 20}) {
      for (int i = 0; i < 9; ++i) {
        const cuda::Message message{rank.rank == 0, 1 - rank.rank, memory.data(), bytes};
        if (rank.rank > 1) continue;
        ASSERT_EQ(rank.communicator.exchange({&message, 1}, rank.stream), cuda::Status::kOk);
      }
      rank.synchronize();
    }
    rank.crossing.wait();
    // And the collectives still fit together.
    const Cases cases(rank);
    Tried tried(rank, 1U << 20);
    rank.crossing.wait();
    tried.run(cases.all_gather({5, 1000, DType::kFloat32, false}));
    tried.run(cases.reduce_scatter({5, 1000, DType::kFloat32, false}, Op::kSum));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Messages, ::testing::Values(Setting{2}, Setting{3}, Setting{4}, Setting{8}));
INSTANTIATE_TEST_SUITE_P(InHostMemory, Messages,
                         ::testing::Values(Setting{2, cuda::Home::kHost}, Setting{4, cuda::Home::kHost}));

}  // namespace
}  // namespace tensorwire::test
