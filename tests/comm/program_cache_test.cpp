// Whose peers may still wait for an acknowledgement when a rank is done.
#include "comm/program_cache.hpp"

#include <gtest/gtest.h>

#include "base/mapped_memory.hpp"

namespace tensorwire::comm {
namespace {

using collective::Collective;
using collective::Shape;

constexpr std::uint64_t kPayload = 64 << 10;

/// The runner only makes room for the programs.
class NoActions final : public collective::HostActions {
 public:
  bool write(const collective::WriteRequest& /*request*/) noexcept override { return false; }
};

class ProgramCacheTest : public ::testing::Test {
 protected:
  bool owes(std::uint32_t ranks, std::uint64_t bytes, Collective collective = Collective::kAllReduce,
            bool in_place = false) {
    collective::RunnerConfig config;
    config.ranks = ranks;
    config.slot_bytes = kPayload + collective::kSlotHeaderBytes;
    const MappedMemory scratch{config.scratch_bytes(), "scratch memory", ""};
    NoActions actions;
    collective::Runner runner{config, scratch.bytes().data(), 0, actions};
    ProgramCache cache{0, kPayload, collective::Thresholds{}};
    Shape shape;
    shape.ranks = ranks;
    shape.count = bytes / element_bytes(shape.dtype);
    shape.collective = collective;
    return cache.get(shape, in_place, {}, runner).owes_acknowledgements;
  }
};

TEST_F(ProgramCacheTest, WhatIsSentFromMemoryOfTheLibraryNeedsNoAcknowledgementSoon) {
  EXPECT_FALSE(owes(2, 1 << 10));
  EXPECT_FALSE(owes(2, 8 << 10));
  EXPECT_FALSE(owes(8, 1 << 10));
  EXPECT_FALSE(owes(2, 1 << 10, Collective::kAllReduce, true));
}

TEST_F(ProgramCacheTest, APeerMaySendFromItsUsersBufferThoughThisRankIsInPlace) {
  EXPECT_TRUE(owes(2, 16 << 10));
  EXPECT_TRUE(owes(2, 16 << 10, Collective::kAllReduce, true));
}

TEST_F(ProgramCacheTest, InTwoShotsTheSecondOneCarriesIt) { EXPECT_FALSE(owes(2, 256 << 10)); }

TEST_F(ProgramCacheTest, WhereNothingTravelsBackItIsOwed) {
  EXPECT_TRUE(owes(4, 1 << 10, Collective::kBroadcast));
  EXPECT_TRUE(owes(4, 1 << 10, Collective::kAllGather));
}

}  // namespace
}  // namespace tensorwire::comm
