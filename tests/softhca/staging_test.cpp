// Staging of GPU memory: what is copied when, what is waited for, and what becomes of bytes that cannot be copied. Over
// a GPU double whose copies finish only when somebody waits for them.
#include "softhca/gpu/staging.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "base/random.hpp"
#include "softhca/gpu_double.hpp"
#include "wire/icrc.hpp"

namespace tensorwire::softhca::testing {
namespace {

constexpr std::size_t kPacket = 4096;

struct StagingTest : ::testing::Test {
  explicit StagingTest(bool late = false) {
    auto made = std::make_unique<DoubleEngine>(memory, Staging::kPinnedBytes);
    engine = made.get();
    staging = std::make_unique<Staging>(std::move(made), late);
  }

  /// A registered allocation with bytes that tell where they are.
  struct Region {
    DoubleMemory::Allocation at;
    std::unique_ptr<StagedRegion> ops;
  };
  Region region(std::size_t bytes) {
    const DoubleMemory::Allocation at = memory.allocate(bytes);
    for (std::size_t i = 0; i < bytes; ++i) at.bytes[i] = static_cast<std::byte>(i * 7 + (i >> 8));
    return {at, std::make_unique<StagedRegion>(*staging, memory.id_of(at.address, bytes))};
  }
  static std::vector<std::byte> bytes_of(std::size_t count, std::uint64_t seed) {
    Random random{seed};
    std::vector<std::byte> bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256));
    return bytes;
  }
  /// A batch of packets, as a link announces it.
  static void want(const Region& from, std::size_t offset, std::size_t packets) {
    for (std::size_t i = 0; i < packets; ++i) from.ops->prefetch(from.at.address + offset + i * kPacket, kPacket);
  }
  static bool load_right(const Region& from, std::size_t offset, std::size_t bytes) {
    std::vector<std::byte> loaded(bytes);
    return from.ops->load(from.at.address + offset, loaded, nullptr) &&
           std::equal(loaded.begin(), loaded.end(), from.at.bytes.begin() + static_cast<std::ptrdiff_t>(offset));
  }

  DoubleMemory memory;
  DoubleEngine* engine = nullptr;
  std::unique_ptr<Staging> staging;
};

struct LateStagingTest : StagingTest {
  LateStagingTest() : StagingTest(true) {}
};

// ---- reading

TEST_F(StagingTest, PacketsWaitForTheCopyThatHoldsThemAndNoOther) {
  const Region from = region(256 * 1024);
  want(from, 0, 64);
  staging->wanted();
  ASSERT_EQ(engine->reads.begun, 4U) << "256 KiB in four copies";
  EXPECT_EQ(engine->reads.done, 0U);
  for (std::size_t packet = 0; packet < 64; ++packet) {
    ASSERT_TRUE(load_right(from, packet * kPacket, kPacket)) << packet;
    EXPECT_EQ(engine->reads.done, packet / 16 + 1) << packet;
  }
  EXPECT_EQ(staging->counters().copies, 4U);
  EXPECT_EQ(staging->counters().bytes_read, 256U * 1024);
}

TEST_F(StagingTest, OnlyNeighboursShareACopy) {
  const Region one = region(1 << 16), other = region(1 << 16);
  want(one, 0, 2);
  want(one, 3 * kPacket, 1);  // a gap
  want(other, 4 * kPacket, 1);
  staging->wanted();
  EXPECT_EQ(engine->reads.begun, 3U);
  EXPECT_TRUE(load_right(one, 0, kPacket));
  EXPECT_TRUE(load_right(one, kPacket, kPacket));
  EXPECT_TRUE(load_right(one, 3 * kPacket, kPacket));
  EXPECT_TRUE(load_right(other, 4 * kPacket, kPacket));
  EXPECT_EQ(engine->reads.begun, 3U) << "all were announced";
}

TEST_F(StagingTest, ABatchIsReadOnceAndTheNextOneAnew) {
  const Region from = region(1 << 16);
  want(from, 0, 1);
  staging->wanted();
  ASSERT_TRUE(load_right(from, 0, kPacket));
  staging->forget_batch();
  from.at.bytes[17] ^= std::byte{1};  // a retransmission reads what is there then
  want(from, 0, 1);
  staging->wanted();
  EXPECT_TRUE(load_right(from, 0, kPacket));
}

TEST_F(StagingTest, WhatNobodyLoadedIsNotWrittenIntoTheNextBatch) {
  const Region from = region(1 << 17);
  want(from, 0, 16);
  staging->wanted();
  staging->forget_batch();  // the link gave the batch up
  EXPECT_EQ(engine->reads.done, engine->reads.begun);
  want(from, 1 << 16, 16);
  staging->wanted();
  EXPECT_TRUE(load_right(from, 1 << 16, 1 << 16));
}

TEST_F(StagingTest, WhatWasNotAnnouncedIsReadAllTheSame) {
  const Region from = region(1 << 20);
  EXPECT_TRUE(load_right(from, 3, 1));
  EXPECT_TRUE(load_right(from, 5, 300'000)) << "more than the buffer holds";
  want(from, 0, 200);  // more than a batch holds
  staging->wanted();
  for (std::size_t packet = 0; packet < 200; ++packet) ASSERT_TRUE(load_right(from, packet * kPacket, kPacket));
}

TEST_F(StagingTest, TheCrcOfWhatIsCopiedIsThatOfTheBytes) {
  const Region at = region(1 << 16);
  const std::vector<std::byte> bytes = bytes_of(5000, 1);
  std::uint32_t crc = 17;
  ASSERT_TRUE(at.ops->store(at.at.address + 3, bytes, &crc));
  EXPECT_EQ(crc, wire::crc_update(17, bytes));
  std::vector<std::byte> loaded(bytes.size());
  crc = 18;
  ASSERT_TRUE(at.ops->load(at.at.address + 3, loaded, &crc));
  EXPECT_EQ(crc, wire::crc_update(18, bytes));
  EXPECT_EQ(loaded, bytes);
}

// ---- writing

TEST_F(StagingTest, AStoreIsThereWhenItReturns) {
  const Region to = region(1 << 16);
  const std::vector<std::byte> bytes = bytes_of(kPacket, 2);
  ASSERT_TRUE(to.ops->store(to.at.address + 100, bytes, nullptr));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), to.at.bytes.begin() + 100));
  EXPECT_FALSE(staging->outstanding());
}

TEST_F(StagingTest, DeferredBytesAreThereWhenTheySettle) {
  const Region to = region(1 << 16);
  const std::vector<std::byte> bytes = bytes_of(3 * kPacket, 3);
  staging->defer(9);
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(to.ops->store(to.at.address + i * kPacket, std::span{bytes}.subspan(i * kPacket, kPacket), nullptr));
  }
  staging->defer(0);
  EXPECT_EQ(engine->writes.begun, 0U) << "noted, not begun";
  staging->issue();
  EXPECT_EQ(engine->writes.begun, 1U) << "three packets, one copy";
  EXPECT_NE(to.at.bytes[0], bytes[0]) << "the double is late";
  staging->settle();
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), to.at.bytes.begin()));
  EXPECT_EQ(staging->counters().settles, 1U);
  EXPECT_TRUE(staging->whole(9));
}

TEST_F(StagingTest, LongRunsBeginBeforeTheirMessageIsWhole) {
  const Region to = region(256 * 1024);
  const std::vector<std::byte> bytes = bytes_of(256 * 1024, 4);
  staging->defer(1);
  for (std::size_t packet = 0; packet < 64; ++packet) {
    ASSERT_TRUE(
        to.ops->store(to.at.address + packet * kPacket, std::span{bytes}.subspan(packet * kPacket, kPacket), nullptr));
    EXPECT_EQ(engine->writes.begun, (packet + 1) / 16) << packet;
  }
  EXPECT_EQ(engine->writes.done, 0U) << "nobody waited";
  staging->settle();
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), to.at.bytes.begin()));
}

TEST_F(StagingTest, QueuePairsThatTakeTurnsDoNotShareARun) {
  const Region to = region(1 << 16);
  const std::vector<std::byte> bytes = bytes_of(4 * kPacket, 5);
  for (std::size_t i = 0; i < 4; ++i) {
    staging->defer(1 + i % 2);
    ASSERT_TRUE(to.ops->store(to.at.address + i * kPacket, std::span{bytes}.subspan(i * kPacket, kPacket), nullptr));
  }
  staging->settle();
  EXPECT_EQ(engine->writes.begun, 4U);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), to.at.bytes.begin()));
}

TEST_F(StagingTest, ALoadSeesWhatWasStoredBefore) {
  const Region at = region(1 << 16);
  const std::vector<std::byte> bytes = bytes_of(kPacket, 6);
  staging->defer(1);
  ASSERT_TRUE(at.ops->store(at.at.address + kPacket, bytes, nullptr));
  std::vector<std::byte> loaded(2 * kPacket);
  ASSERT_TRUE(at.ops->load(at.at.address, loaded, nullptr));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), loaded.begin() + kPacket));

  ASSERT_TRUE(at.ops->store(at.at.address, bytes, nullptr));
  want(at, 0, 1);
  staging->wanted();
  ASSERT_TRUE(at.ops->load(at.at.address, std::span{loaded}.first(kPacket), nullptr));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), loaded.begin()));
}

TEST_F(StagingTest, AnAtomicIsAppliedToWhatIsThere) {
  const Region at = region(64);
  const std::uint64_t before = 40;
  std::memcpy(at.at.bytes.data(), &before, sizeof before);
  const std::uint64_t stored = 50;
  staging->defer(1);
  ASSERT_TRUE(at.ops->store(at.at.address, std::as_bytes(std::span{&stored, 1}), nullptr));
  staging->defer(0);
  std::uint64_t original = 0;
  ASSERT_TRUE(at.ops->atomic(at.at.address, {.compare = false, .operand = 2, .swap = 0}, original));
  EXPECT_EQ(original, 50U);
  ASSERT_TRUE(at.ops->atomic(at.at.address, {.compare = true, .operand = 52, .swap = 7}, original));
  EXPECT_EQ(original, 52U);
  std::uint64_t after = 0;
  std::memcpy(&after, at.at.bytes.data(), sizeof after);
  EXPECT_EQ(after, 7U);
}

/// Whatever is stored, deferred and loaded in whatever order: memory and loads are as if every store had been at once.
TEST_F(StagingTest, AnyOrderOfStoresAndLoadsIsAsIfNothingWereDeferred) {
  constexpr std::size_t kBytes = 600'000;
  const Region at = region(kBytes);
  std::vector<std::byte> model(at.at.bytes.begin(), at.at.bytes.end());
  Random random{7};
  std::size_t next = 0;
  for (int step = 0; step < 6'000; ++step) {
    const std::size_t bytes = 1 + random.below(random.below(50) == 0 ? 200'000 : 5'000);
    const bool continues = random.below(3) != 0 && next + bytes <= kBytes;
    const std::size_t offset = continues ? next : random.below(static_cast<std::uint32_t>(kBytes - bytes));
    switch (random.below(8)) {
      case 0:
        staging->issue();
        break;
      case 1: {
        std::vector<std::byte> loaded(bytes);
        if (random.below(2) == 0 && bytes < 100'000) at.ops->prefetch(at.at.address + offset, bytes);
        staging->wanted();
        ASSERT_TRUE(at.ops->load(at.at.address + offset, loaded, nullptr));
        ASSERT_TRUE(std::equal(loaded.begin(), loaded.end(), model.begin() + static_cast<std::ptrdiff_t>(offset)))
            << step;
        staging->forget_batch();
        break;
      }
      default: {
        const std::vector<std::byte> stored = bytes_of(bytes, static_cast<std::uint64_t>(step));
        staging->defer(random.below(20) == 0 ? 0 : 1 + random.below(2));
        ASSERT_TRUE(at.ops->store(at.at.address + offset, stored, nullptr));
        std::copy(stored.begin(), stored.end(), model.begin() + static_cast<std::ptrdiff_t>(offset));
        next = offset + bytes;
      }
    }
    if (random.below(40) != 0) continue;
    staging->settle();
    ASSERT_TRUE(std::equal(model.begin(), model.end(), at.at.bytes.begin())) << step;
  }
  staging->settle();
  EXPECT_TRUE(std::equal(model.begin(), model.end(), at.at.bytes.begin()));
}

// ---- memory that is gone

TEST_F(StagingTest, FreedMemoryIsNeitherReadNorWritten) {
  const Region at = region(1 << 16);
  memory.free(at.at.address);
  std::vector<std::byte> bytes(kPacket);
  EXPECT_FALSE(at.ops->load(at.at.address, bytes, nullptr));
  EXPECT_FALSE(at.ops->store(at.at.address, bytes, nullptr));
  std::uint64_t original = 0;
  EXPECT_FALSE(at.ops->atomic(at.at.address, {}, original));
  want(at, 0, 2);
  staging->wanted();
  EXPECT_FALSE(at.ops->load(at.at.address, bytes, nullptr));
}

TEST_F(StagingTest, WhatWasAllocatedInsteadIsLeftAlone) {
  const Region at = region(1 << 16);
  const std::vector<std::byte> before(at.at.bytes.begin(), at.at.bytes.end());
  memory.free_and_allocate_anew(at.at.address);
  const std::vector<std::byte> bytes = bytes_of(kPacket, 8);
  EXPECT_FALSE(at.ops->store(at.at.address, bytes, nullptr));
  std::vector<std::byte> loaded(kPacket);
  EXPECT_FALSE(at.ops->load(at.at.address, loaded, nullptr));
  EXPECT_TRUE(std::equal(before.begin(), before.end(), at.at.bytes.begin()));
  EXPECT_EQ(engine->writes.begun + engine->reads.begun, 0U);
}

TEST_F(StagingTest, TheQueuePairWhoseBytesWereLostIsToldAndNoOther) {
  const Region gone = region(1 << 16), there = region(1 << 16);
  const std::vector<std::byte> bytes = bytes_of(kPacket, 9);
  staging->defer(1);
  ASSERT_TRUE(gone.ops->store(gone.at.address, bytes, nullptr)) << "nobody knows yet";
  memory.free(gone.at.address);
  staging->defer(2);
  ASSERT_TRUE(there.ops->store(there.at.address, bytes, nullptr));
  staging->defer(0);
  staging->settle();
  EXPECT_FALSE(staging->whole(1));
  EXPECT_TRUE(staging->whole(2));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), there.at.bytes.begin()));
}

TEST_F(StagingTest, CopiesThatFailAreLossesToo) {
  const Region at = region(1 << 16);
  const std::vector<std::byte> bytes = bytes_of(kPacket, 10);
  engine->writes.broken = engine->reads.broken = true;
  EXPECT_FALSE(at.ops->store(at.at.address, bytes, nullptr));
  std::vector<std::byte> loaded(kPacket);
  EXPECT_FALSE(at.ops->load(at.at.address, loaded, nullptr));
  want(at, 0, 1);
  staging->wanted();
  EXPECT_FALSE(at.ops->load(at.at.address, loaded, nullptr));
}

// ---- late writes

TEST_F(LateStagingTest, NothingIsBegunUntilItIsAskedFor) {
  const Region to = region(256 * 1024);
  const std::vector<std::byte> bytes = bytes_of(256 * 1024, 11);
  staging->defer(1);
  ASSERT_TRUE(to.ops->store(to.at.address, bytes, nullptr));
  staging->issue();
  EXPECT_EQ(engine->writes.begun, 0U);
  EXPECT_TRUE(staging->outstanding());
  staging->settle();
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), to.at.bytes.begin()));
}

}  // namespace
}  // namespace tensorwire::softhca::testing
