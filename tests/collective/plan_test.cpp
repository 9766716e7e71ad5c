// What the builders choose and how their plans read. That they are right is proved in check_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/random.hpp"
#include "collective/algorithms.hpp"
#include "collective/signature.hpp"

namespace tensorwire::collective {
namespace {

/// Steps that must be done before `step` can be.
std::set<std::uint16_t> ancestors(const Program& program, std::uint16_t step) {
  std::set<std::uint16_t> found;
  std::vector<std::uint16_t> open{step};
  while (!open.empty()) {
    const Step& current = program.steps[open.back()];
    open.pop_back();
    for (const std::uint16_t need : program.needs_of(current)) {
      if (found.insert(need).second) open.push_back(need);
    }
  }
  return found;
}

TEST(Plan, OneShotInPlaceOverwritesItsSourceOnlyWhenItIsSent) {
  const Program program = build_one_shot({3, 64, DType::kFloat32, Op::kSum}, 1, WriteSource::kInputInPlace);
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    if (program.steps[i].kind != StepKind::kReduce) continue;
    const auto before = ancestors(program, static_cast<std::uint16_t>(i));
    EXPECT_EQ(std::ranges::count_if(before, [&](auto step) { return program.steps[step].kind == StepKind::kSent; }), 2);
  }
}

TEST(Plan, SourceOfOneShot) {
  const Shape shape{2, 1024, DType::kFloat32, Op::kSum};
  const auto chosen = [&](std::uint64_t copy_in_bytes, bool in_place) {
    Thresholds thresholds;
    thresholds.copy_in_bytes = copy_in_bytes;
    return choose_source(shape, thresholds, in_place);
  };
  EXPECT_EQ(chosen(4096, false), WriteSource::kSendSlot);
  EXPECT_EQ(chosen(4095, false), WriteSource::kInput);
  EXPECT_EQ(chosen(4095, true), WriteSource::kInputInPlace);
}

TEST(Plan, DestinationsRotate) {
  const Program program = build_two_shot({4, 1024, DType::kFloat32, Op::kSum}, 2);
  std::vector<std::uint32_t> first;
  for (const Step& step : program.steps) {
    if (step.kind == StepKind::kWrite && step.message == 0) first.push_back(step.peer);
  }
  EXPECT_EQ(first, (std::vector<std::uint32_t>{3, 0, 1}));
}

TEST(Plan, TwoShotChunksAreAligned) {
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    for (const Step& step : build_two_shot({3, 1001, DType::kFloat16, Op::kSum}, rank).steps) {
      if (step.kind == StepKind::kReduce) {
        EXPECT_EQ(step.target.offset % kChunkAlignment, 0U);
      }
    }
  }
}

TEST(Plan, SegmentsCoverTheMessageAndFitTheSlots) {
  constexpr Algorithm kAlgorithms[] = {Algorithm::kOneShot, Algorithm::kTwoShot, Algorithm::kTwoShotWindow,
                                       Algorithm::kRing, Algorithm::kHierarchical};
  Random random{11};
  for (int i = 0; i < 5000; ++i) {
    const Algorithm algorithm = kAlgorithms[random.below(std::size(kAlgorithms))];
    Shape shape{1 + random.below(16), random.below(1U << random.below(20)), DType::kFloat16, Op::kSum};
    if (random.chance(500'000)) shape.dtype = DType::kFloat32;
    BuildOptions options;
    if (shape.ranks % 2 == 0) options.group_ranks = shape.ranks / 2;
    const std::uint64_t slot = 64 * ((algorithm == Algorithm::kRing ? 30 : 2) + random.below(64));
    const Segmentation cut = split(algorithm, shape, slot, options);
    ASSERT_GE(cut.segments, 1U);
    ASSERT_EQ((cut.segments - 1) * cut.segment_count + cut.last_count, shape.count);
    ASSERT_LE(cut.last_count, cut.segment_count);
    if (cut.segments > 1) {
      ASSERT_GT(cut.last_count, 0U);
      ASSERT_EQ(cut.segment_count * element_bytes(shape.dtype) % kChunkAlignment, 0U);
    }
    for (const std::uint64_t segment : {std::uint64_t{0}, cut.segments - 1}) {
      const Program program = build_segment(shape, algorithm, random.below(shape.ranks), options, cut, segment);
      ASSERT_LE(program.slot_payload_bytes, slot) << to_string(program);
    }
  }
  EXPECT_THROW(static_cast<void>(split(Algorithm::kTwoShot, {2, 1, DType::kFloat32, Op::kSum}, 64)), Error);
}

TEST(Plan, ChoiceFollowsTheThresholds) {
  const Thresholds thresholds{1000, 2000, 0};
  EXPECT_EQ(choose({4, 250, DType::kFloat32, Op::kSum}, thresholds), Algorithm::kOneShot);
  EXPECT_EQ(choose({4, 251, DType::kFloat32, Op::kSum}, thresholds), Algorithm::kTwoShot);
  EXPECT_EQ(choose({2, 500, DType::kFloat32, Op::kSum}, thresholds), Algorithm::kOneShot);
  EXPECT_EQ(choose({2, 501, DType::kFloat32, Op::kSum}, thresholds), Algorithm::kTwoShot);
  EXPECT_EQ(choose({2, 0, DType::kFloat32, Op::kSum}, {0, 0, 0}), Algorithm::kOneShot);

  Thresholds more{1000, 2000, 0};
  more.slot_bytes = 4000;
  more.ring_bytes = 8000;
  const auto chosen = [&](std::uint64_t count, Order order) { return choose({4, count}, more, order); };
  EXPECT_EQ(chosen(1000, Order::kAny), Algorithm::kTwoShot);
  EXPECT_EQ(chosen(1001, Order::kAny), Algorithm::kTwoShotWindow);
  EXPECT_EQ(chosen(2001, Order::kAny), Algorithm::kRing);
  for (const Order order : {Order::kRank, Order::kBatchInvariant}) {
    for (std::uint64_t count = 0; count < 4000; count += 100) EXPECT_TRUE(keeps_order(chosen(count, order), order));
  }
  EXPECT_FALSE(keeps_order(Algorithm::kRing, Order::kRank));
  Shape broadcast{8, 1, DType::kFloat32, Op::kSum, Collective::kBroadcast};
  EXPECT_EQ(choose(broadcast, more), Algorithm::kDirect);
  broadcast.count = 1001;
  EXPECT_EQ(choose(broadcast, more), Algorithm::kWindow);
  broadcast.ranks = 9;
  EXPECT_EQ(choose(broadcast, more), Algorithm::kTreeWindow);
  broadcast.count = 1;
  EXPECT_EQ(choose(broadcast, more), Algorithm::kTree);
  for (const Collective collective : {Collective::kAllGather, Collective::kAllToAll}) {
    EXPECT_EQ(choose({4, 1000, DType::kFloat32, Op::kSum, collective}, more), Algorithm::kDirect);
    EXPECT_EQ(choose({4, 1001, DType::kFloat32, Op::kSum, collective}, more), Algorithm::kWindow);
  }
  EXPECT_EQ(choose({4, 1001, DType::kFloat32, Op::kSum, Collective::kReduceScatter}, more), Algorithm::kDirect);
  EXPECT_EQ(choose({4, 4000, DType::kInt32, Op::kAverage}, more), Algorithm::kTwoShotWindow) << "a ring keeps no sum";
}

TEST(Plan, BuildersRefuseNonsense) {
  EXPECT_THROW(static_cast<void>(build_one_shot({0, 1, DType::kFloat32, Op::kSum}, 0)), Error);
  EXPECT_THROW(static_cast<void>(build_two_shot({2, 1, DType::kFloat32, Op::kSum}, 2)), Error);
  EXPECT_THROW(static_cast<void>(build_two_shot({kMaxRanks + 1, 1, DType::kFloat32, Op::kSum}, 2)), Error);
  const auto refused = [](Shape shape, Algorithm algorithm, const BuildOptions& options = {}) {
    EXPECT_THROW(static_cast<void>(build_program(shape, algorithm, 0, options)), Error);
  };
  refused({2, 1}, Algorithm::kDirect);
  refused({2, 1, DType::kFloat32, Op::kSum, Collective::kAllGather}, Algorithm::kRing);
  refused({2, 1, DType::kFloat32, Op::kSum, Collective::kBroadcast, 2}, Algorithm::kDirect);
  refused({2, 1, DType::kFloat32, Op::kSum, Collective::kSendRecv, 1, 1}, Algorithm::kDirect);
  refused({2, 1, DType::kFloat32, Op::kSum, Collective::kBarrier}, Algorithm::kDirect);
  refused({2, kMostCount + 1}, Algorithm::kTwoShot);
  refused({kMaxRingRanks + 1, 1}, Algorithm::kRing);
  refused({2, 1, DType::kInt32, Op::kAverage}, Algorithm::kRing);
  BuildOptions odd_groups;
  odd_groups.group_ranks = 3;
  refused({4, 1}, Algorithm::kHierarchical, odd_groups);
  const std::vector<std::uint64_t> counts(3);
  BuildOptions too_few;
  too_few.counts = counts;
  refused({2, 1, DType::kFloat32, Op::kSum, Collective::kAllToAll}, Algorithm::kDirect, too_few);
  ProgramBuilder builder{Algorithm::kOneShot, {2, 1, DType::kFloat32, Op::kSum}, 0};
  EXPECT_THROW(builder.write(0, 0, {Place::kInput, 0, 0}, 0, 4), Error) << "a write to itself";
  EXPECT_THROW(builder.write(1, 0, {Place::kInput, 0, 0}, 0, 4, {7}), Error) << "needs a later step";
  EXPECT_THROW(builder.write(1, kMaxMessages, {Place::kInput, 0, 0}, 0, 4), Error);
  builder.arrival(1, 0);
  builder.arrival(1, 0);
  EXPECT_THROW(static_cast<void>(builder.finish()), Error) << "one message awaited twice";
}

TEST(Plan, AChecksumOfTheCountsTellsThemApart) {
  const Shape shape{2, 5, DType::kFloat32, Op::kSum, Collective::kAllToAll};
  const auto of = [&](const std::vector<std::uint64_t>& counts) {
    BuildOptions options;
    options.counts = counts;
    return signature_count(shape, options);
  };
  EXPECT_EQ(of({}), 5U);
  EXPECT_EQ(of({1, 2, 3, 4}), of({1, 2, 3, 4}));
  EXPECT_NE(of({1, 2, 3, 4}), of({2, 1, 3, 4}));
  EXPECT_NE(of({1, 2, 3, 4}), of({1, 2, 3, 5}));
  EXPECT_LE(of({1, 2, 3, 4}), kMostCount);
}

TEST(Plan, JsonNamesEveryStep) {
  const std::string text = to_json(build_plan({2, 64, DType::kFloat32, Op::kMax}, Algorithm::kTwoShotWindow));
  EXPECT_NE(text.find(R"({"collective": "all-reduce", "algorithm": "two-shot into windows", "ranks": 2, "count": 64)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(R"({"kind": "write", "peer": 1, "message": 1, "with_signature": false, "bytes": 128, )"
                      R"("source": {"place": "output", "offset": 0}, )"
                      R"("target": {"place": "peer output", "peer": 1, "offset": 0}, "needs": [4]})"),
            std::string::npos)
      << text;
  std::ptrdiff_t depth = 0;
  for (const char c : text) depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
  EXPECT_EQ(depth, 0);
}

TEST(Plan, PrintsOneLinePerStep) {
  const std::string text = to_string(build_two_shot({2, 256, DType::kFloat16, Op::kSum}, 1));
  EXPECT_NE(text.find("two-shot all-reduce of 256 x fp16, 2 ranks, rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("write signature + input[0, 256) -> rank 0 [0, 256), message 0"), std::string::npos) << text;
  EXPECT_NE(text.find("reduce slot of 0[0, 256) + input[256, 512) -> output[256, 512) and send slot[0, 256)"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace tensorwire::collective
