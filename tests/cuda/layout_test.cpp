// The arithmetic that ranks must agree on without a word: regions that never share bytes, shapes that fit, flags that
// are renewed before they come up again.
#include "cuda/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "cuda/failure.hpp"
#include "cuda/shape.hpp"

namespace tensorwire::cuda {
namespace {

using collective::DType;

struct Region {
  std::size_t from, to;
};

/// Everything that is written by somebody, as byte ranges.
std::vector<Region> regions_of(const Layout& layout) {
  std::vector<Region> regions;
  const auto add = [&](std::size_t from, std::size_t bytes) { regions.push_back({from, from + bytes}); };
  for (std::uint32_t rank = 0; rank < kMaxRanks; ++rank) add(layout.error_at(rank), 8);
  for (std::uint32_t lane = 0; lane < layout.lanes; ++lane) {
    add(layout.counter_at(lane, Counter::kLines), kLaneStateBytes);
    for (std::uint32_t sender = 0; sender < layout.ranks; ++sender) {
      for (std::uint32_t half = 0; half < kHalves; ++half) {
        add(layout.lines_at(lane, sender, half), std::size_t{layout.lines} * kLineBytes);
      }
      for (std::uint32_t place = 0; place < kWordRing; ++place) {
        add(layout.words_at(lane, sender, place), layout.round_bytes);
      }
      for (std::uint32_t flag = 0; flag < kFlags; ++flag) {
        add(layout.flag_at(static_cast<Flag>(flag), lane, sender), kFlagBytes);
      }
      for (std::uint32_t phase = 0; phase < layout.phases(); ++phase) {
        for (std::uint32_t place = 0; place < kRing; ++place) {
          add(layout.slot_at(static_cast<Phase>(phase), lane, sender, place), layout.slot_bytes);
        }
      }
    }
  }
  for (std::uint32_t channel = 0; channel < layout.channels(); ++channel) {
    for (std::uint32_t peer = 0; peer < layout.ranks; ++peer) {
      add(layout.channel_counter_at(channel, peer, ChannelCounter::kSent), kChannelStateBytes);
      for (std::uint32_t flag = 0; flag < kChannelFlags; ++flag) {
        add(layout.channel_flag_at(channel, peer, static_cast<ChannelFlag>(flag)), kFlagBytes);
      }
      for (std::uint32_t place = 0; place < kRing; ++place) {
        add(layout.channel_lines_at(channel, peer, place), std::size_t{kChannelLines} * kLineBytes);
        add(layout.channel_slot_at(channel, peer, place), layout.slot_bytes);
      }
    }
  }
  add(layout.journal_head_at(), sizeof(JournalHead));
  for (std::uint32_t teller = 0; teller < kMaxRanks; ++teller) add(layout.told_at(teller), 8);
  add(layout.journal_at(), kJournalEntries * sizeof(JournalEntry));
  return regions;
}

TEST(Layout, RegionsNeverShareBytes) {
  for (const std::uint32_t ranks : {2U, 3U, 8U}) {
    for (const std::uint32_t lanes : {1U, 7U, 33U}) {
      const Layout layout{ranks, lanes, 96, 1024, 4096, 32};
      std::vector<Region> regions = regions_of(layout);
      std::ranges::sort(regions, {}, &Region::from);
      for (std::size_t i = 1; i < regions.size(); ++i) ASSERT_LE(regions[i - 1].to, regions[i].from);
      EXPECT_LE(regions.back().to, layout.bytes());
      for (const Region& region : regions) ASSERT_EQ(region.from % 8, 0U);
      EXPECT_EQ(layout.lines_at(0, 0, 0) % kLineBytes, 0U);
      EXPECT_EQ(layout.slot_at(Phase::kScatter, 0, 0, 0) % kUnitBytes, 0U);
    }
  }
}

TEST(Layout, EveryLineIsRenewedBeforeItsFlagComesUpAgain) {
  for (const std::uint32_t bits : {4U, 8U}) {
    for (const std::uint32_t lines : {2U, 64U, 1000U, 1024U}) {
      const Layout layout{2, 1, lines, 4096, 4096, bits};
      std::vector<std::uint64_t> renewed(lines, 0);
      for (std::uint64_t operation = 1; operation < 8U << bits; ++operation) {
        if (operation % kHalves != 0) continue;
        for (std::uint32_t line = 0; line < lines; ++line) {
          if (renewed[line] == 0) continue;
          ASSERT_LT(operation - renewed[line], 1U << bits) << line << " of " << lines;
        }
        // As lines.cu does it, with an operation that needs no line itself.
        const std::uint32_t each = layout.refreshed_lines();
        for (std::uint32_t i = 0; i < each; ++i) renewed[(operation / kHalves * each + i) % lines] = operation;
      }
      EXPECT_EQ(std::ranges::count(renewed, 0U), 0);
    }
  }
}

TEST(Shape, WhatIsChosenFits) {
  for (const std::uint32_t ranks : {2U, 3U, 4U, 8U}) {
    for (const std::uint32_t lanes : {1U, 16U, 33U, 128U}) {
      Layout layout{ranks, lanes, 1024, 16384, 32768, 32};
      layout.in_host = lanes % 2 == 0;
      for (std::size_t bytes = 1; bytes <= 64U << 20; bytes += bytes / 3 + 1) {
        const DType dtype = bytes % 2 == 0 ? DType::kInt32 : DType::kBfloat16;
        const Shape shape = choose_shape(bytes, dtype, layout);
        ASSERT_TRUE(fits(shape, bytes, dtype, layout))
            << bytes << " bytes, " << ranks << " ranks, " << lanes << " lanes";
      }
    }
  }
}

TEST(Shape, MessagesFitTheirChannels) {
  for (const std::uint32_t lanes : {1U, 16U, 33U, 128U}) {
    const Layout layout{4, lanes, 1024, 16384, 32768, 32};
    EXPECT_EQ(choose_message_shape(8, layout).channels, 1U);
    for (std::size_t bytes = 2; bytes <= 64U << 20; bytes += bytes / 3 + 2) {
      const MessageShape shape = choose_message_shape(bytes, layout);
      ASSERT_GE(shape.channels, 1U);
      ASSERT_LE(shape.channels, layout.channels());
      ASSERT_LE(shape.piece_bytes, layout.slot_bytes);
      ASSERT_EQ(shape.piece_bytes % kUnitBytes, 0U);
      if (shape.piece_bytes == 0) {
        ASSERT_LE(lane_units(bytes, shape.channels) * kUnitBytes, kChannelLines * kLineData);
      }
    }
  }
}

TEST(Shape, IntegersAndLargeTensorsTakeTheirOwnWay) {
  const Layout two{2, 128, 1024, 16384, 32768, 32};
  const Layout eight{8, 16, 1024, 16384, 32768, 32};
  EXPECT_EQ(choose_shape(8, DType::kBfloat16, two), (Shape{Protocol::kWords, 1, 32, 0}));
  EXPECT_EQ(choose_shape(1U << 20, DType::kFloat32, two).protocol, Protocol::kWords);
  EXPECT_EQ(choose_shape(64U << 20, DType::kFloat32, two).protocol, Protocol::kSlots);
  EXPECT_EQ(choose_shape(64U << 20, DType::kFloat16, eight).protocol, Protocol::kSlots);
  EXPECT_EQ(choose_shape(64, DType::kInt32, two).protocol, Protocol::kLines);
  EXPECT_EQ(choose_shape(64U << 20, DType::kInt32, two).protocol, Protocol::kSlots);
  EXPECT_FALSE(fits({Protocol::kWords, 1, 32, 0}, 64, DType::kInt32, two));
}

TEST(Failure, SurvivesItsWord) {
  const Failure failure{FailureKind::kTimeout, 7, 3, 131, 0xfedcba98};
  const Failure back = Failure::unpacked(failure.packed());
  EXPECT_EQ(back.kind, failure.kind);
  EXPECT_EQ(back.peer, failure.peer);
  EXPECT_EQ(back.reporter, failure.reporter);
  EXPECT_EQ(back.lane, failure.lane);
  EXPECT_EQ(back.sequence, failure.sequence);
}

}  // namespace
}  // namespace tensorwire::cuda
