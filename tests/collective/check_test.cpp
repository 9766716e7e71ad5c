// Every builder is proved: 1 to 64 ranks, awkward sizes, in place and not; every ordered triple of different plans.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.hpp"
#include "plan_catalogue.hpp"

namespace tensorwire::collective {
namespace {

#if defined(TENSORWIRE_ASAN) || defined(TENSORWIRE_TSAN)
constexpr std::uint32_t kMostRanks = 24;  // a sanitized build proves the checker's memory use, not the plans again
constexpr std::size_t kLastPlans = 5;
#else
constexpr std::uint32_t kMostRanks = 64;
constexpr std::size_t kLastPlans = 1000;
#endif

/// Sizes that are no multiple of anything, around every bound that a builder may have.
std::vector<std::uint64_t> awkward_counts(std::uint32_t ranks) {
  return {0, 1, ranks - 1, ranks + 1, 127, 16 * ranks, 16 * ranks + 1, 1009, 65'537};
}

class EveryPlan : public testing::TestWithParam<Collective> {};

TEST_P(EveryPlan, IsProved) {
  Random random{static_cast<std::uint64_t>(GetParam())};
  for (const Algorithm algorithm : kAlgorithms) {
    for (std::uint32_t ranks = 1; ranks <= kMostRanks; ++ranks) {
      std::vector<std::uint64_t> counts = awkward_counts(ranks);
      // With many ranks a sample of the sizes; small numbers see them all.
      while (ranks > 12 && counts.size() > 2) {
        counts.erase(counts.begin() + random.below(static_cast<std::uint32_t>(counts.size())));
      }
      for (const std::uint64_t count : counts) {
        const DType dtype = random.chance(500'000) ? DType::kFloat32 : DType::kFloat16;
        auto all = recipes(GetParam(), algorithm, ranks, count, dtype);
        while (ranks > 12 && all.size() > 1)
          all.erase(all.begin() + random.below(static_cast<std::uint32_t>(all.size())));
        for (Recipe& recipe : all) {
          if (GetParam() == Collective::kAllReduce || GetParam() == Collective::kReduceScatter) {
            recipe.shape.op = kOps[random.below(static_cast<std::uint32_t>(kOps.size()))];
          }
          ASSERT_EQ(to_string(check(recipe.plan(), recipe.check_options())), "proved") << recipe.name();
        }
      }
    }
  }
}

/// What a communicator runs: algorithm and source as chosen, whatever the size.
TEST_P(EveryPlan, AsChosenIsProved) {
  for (std::uint32_t ranks = 1; ranks <= 5; ++ranks) {
    for (const std::uint64_t count : {0, 1, 100, 3'000, 100'000}) {
      Shape shape{ranks, GetParam() == Collective::kBarrier ? 0 : count, DType::kFloat32, Op::kSum, GetParam()};
      if (GetParam() == Collective::kSendRecv) shape.peer = 1;
      if (GetParam() == Collective::kSendRecv && ranks == 1) continue;
      const bool can_be_in_place = GetParam() != Collective::kBarrier && GetParam() != Collective::kSendRecv;
      for (const bool in_place : {false, true}) {
        if (in_place && !can_be_in_place) continue;
        Recipe recipe{shape, choose(shape, Thresholds{}), {}, in_place};
        recipe.build.source = choose_source(shape, Thresholds{}, in_place);
        ASSERT_EQ(to_string(check(recipe.plan(), recipe.check_options())), "proved") << recipe.name();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Check, EveryPlan, testing::ValuesIn(kCollectives), [](const auto& collective) {
  std::string name{name_of(collective.param)};
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
});

/// Plans that differ in everything that can differ, for the same ranks.
std::vector<Recipe> different_plans(std::uint32_t ranks) {
  std::vector<Recipe> all;
  for (const Collective collective : kCollectives) {
    for (const Algorithm algorithm : kAlgorithms) {
      // The first way with a tiny tensor, the last one (another root, larger groups) with one that is cut into chunks.
      for (const std::uint64_t count : {1, 100}) {
        auto some = recipes(collective, algorithm, ranks, count);
        std::erase_if(some, [](const Recipe& recipe) { return recipe.in_place; });
        if (!some.empty()) all.push_back(count == 1 ? some.front() : some.back());
        if (collective == Collective::kBarrier) break;
      }
    }
  }
  return all;
}

class Triples : public testing::TestWithParam<std::uint32_t> {};

TEST_P(Triples, OfDifferentPlansAreProved) {
  const auto all = different_plans(GetParam());
  ASSERT_GE(all.size(), 20U);
  std::vector<Plan> plans;
  for (const Recipe& recipe : all) plans.push_back(recipe.plan());
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = 0; b < all.size(); ++b) {
      for (std::size_t c = 0; c < std::min(all.size(), kLastPlans); ++c) {
        const Plan* const sequence[] = {&plans[a], &plans[b], &plans[c]};
        const Verdict verdict = check(sequence);
        ASSERT_TRUE(verdict.proved()) << to_string(verdict) << "\n"
                                      << all[a].name() << "; " << all[b].name() << "; " << all[c].name();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Check, Triples, testing::Values(2U, 3U, 4U), testing::PrintToStringParamName());

TEST(Check, LongSequencesOfManyRanks) {
  Random random{5};
  for (const std::uint32_t ranks : {5U, 9U, 16U}) {
    const auto all = different_plans(ranks);
    for (int round = 0; round < 12; ++round) {
      std::vector<Plan> plans;
      std::string names;
      for (int i = 0; i < 7; ++i) {
        const Recipe& recipe = all[random.below(static_cast<std::uint32_t>(all.size()))];
        plans.push_back(recipe.plan());
        names += recipe.name() + "; ";
      }
      std::vector<const Plan*> sequence;
      for (const Plan& plan : plans) sequence.push_back(&plan);
      for (const std::uint32_t depth : {2U, 3U}) {
        CheckOptions options;
        options.depth = depth;
        options.send_slots = 2 + random.below(2);
        ASSERT_EQ(to_string(check(sequence, options)), "proved") << names;
      }
    }
  }
}

TEST(Check, SaysWhatStandsInTheOutput) {
  const auto results = results_of(build_plan({3, 100, DType::kFloat32, Op::kSum}, Algorithm::kTwoShot), 1);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].end, 400U);
  EXPECT_EQ(results[0].value, "(x0 + x1 + x2)");
  EXPECT_EQ(results_of(build_plan({64, 1, DType::kFloat32, Op::kSum}, Algorithm::kOneShot), 0)[0].value,
            "(x0 + ... + x63)");
}

TEST(Check, SlotsThatAreTooSmall) {
  CheckOptions options;
  options.slot_payload_bytes = 64;
  const Verdict verdict = check(build_plan({2, 100, DType::kFloat32, Op::kSum}, Algorithm::kOneShot), options);
  EXPECT_NE(to_string(verdict).find("outside"), std::string::npos) << to_string(verdict);
}

TEST(Check, NothingIsProvedByNothing) { EXPECT_TRUE(check(std::span<const Plan* const>{}).proved()); }

}  // namespace
}  // namespace tensorwire::collective
