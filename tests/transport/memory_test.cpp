// The memory table's one check, at its edges, and the key map under it.
#include "transport/memory.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>

#include "transport/key_map.hpp"

namespace tensorwire::transport::test {
namespace {

constexpr std::uint64_t kTop = std::numeric_limits<std::uint64_t>::max();

TEST(MemoryTable, ChecksKeyDomainRangeAndRights) {
  MemoryTable table(1);
  const MemoryRegion& region = table.add({0x1000, 0x100, 0x8000, kAccessLocalWrite, 0, 3, nullptr});
  Piece piece{};
  EXPECT_EQ(table.check(region.key, 3, 0x1010, 0x20, kAccessLocalWrite, piece), AccessResult::kOk);
  EXPECT_EQ(piece.mr, &region);
  EXPECT_EQ(piece.address, 0x8010U);
  EXPECT_EQ(piece.length, 0x20U);
  EXPECT_EQ(table.check(region.key, 3, 0x1000, 0x100, 0, piece), AccessResult::kOk);
  EXPECT_EQ(table.check(region.key, 3, 0x1100, 0, 0, piece), AccessResult::kOk);
  EXPECT_EQ(table.check(region.key + 1, 3, 0x1000, 1, 0, piece), AccessResult::kBadKey);
  EXPECT_EQ(table.check(region.key, 4, 0x1000, 1, 0, piece), AccessResult::kWrongPd);
  EXPECT_EQ(table.check(region.key, 3, 0x0fff, 1, 0, piece), AccessResult::kOutOfRange);
  EXPECT_EQ(table.check(region.key, 3, 0x10ff, 2, 0, piece), AccessResult::kOutOfRange);
  EXPECT_EQ(table.check(region.key, 3, 0x1101, 0, 0, piece), AccessResult::kOutOfRange);
  EXPECT_EQ(table.check(region.key, 3, 0x1000, 1, kAccessRemoteWrite, piece), AccessResult::kNoRight);
  EXPECT_EQ(table.check(region.key, 3, 0x1000, 1, kAccessLocalWrite | kAccessRemoteWrite, piece),
            AccessResult::kNoRight);
}

TEST(MemoryTable, NothingWrapsAround) {
  MemoryTable table(1);
  const MemoryRegion& high = table.add({kTop - 0xff, 0x100, 0, 0, 0, 1, nullptr});
  const MemoryRegion& all = table.add({0, kTop, 0, 0, 0, 1, nullptr});
  const MemoryRegion& low = table.add({0, 0x100, 0, 0, 0, 1, nullptr});
  Piece piece{};
  EXPECT_EQ(table.check(high.key, 1, kTop, 1, 0, piece), AccessResult::kOk);
  EXPECT_EQ(table.check(high.key, 1, kTop, 2, 0, piece), AccessResult::kOutOfRange);
  EXPECT_EQ(table.check(high.key, 1, kTop - 0xff, 0x101, 0, piece), AccessResult::kOutOfRange);
  EXPECT_EQ(table.check(high.key, 1, 0, 1, 0, piece), AccessResult::kOutOfRange);
  EXPECT_EQ(table.check(low.key, 1, kTop, 2, 0, piece), AccessResult::kOutOfRange);
  EXPECT_EQ(table.check(low.key, 1, 1, kTop, 0, piece), AccessResult::kOutOfRange);
  EXPECT_EQ(table.check(all.key, 1, kTop, 1, 0, piece), AccessResult::kOutOfRange);
  EXPECT_EQ(table.check(all.key, 1, kTop - 1, 1, 0, piece), AccessResult::kOk);
}

TEST(MemoryTable, KeysAreRandomUniqueAndForgottenWithTheirRegion) {
  MemoryTable table(1);
  MemoryTable other(2);
  std::set<std::uint32_t> keys;
  for (int i = 0; i < 5000; ++i) keys.insert(table.add({0, 1, 0, 0, 0, 1, nullptr}).key);
  EXPECT_EQ(keys.size(), 5000U);
  EXPECT_EQ(keys.count(0), 0U);
  EXPECT_EQ(keys.count(other.add({0, 1, 0, 0, 0, 1, nullptr}).key), 0U);
  EXPECT_EQ(table.count(1), 5000U);
  for (const std::uint32_t key : keys) {
    EXPECT_TRUE(table.remove(key));
    EXPECT_FALSE(table.remove(key));
    EXPECT_EQ(table.find(key), nullptr);
  }
  EXPECT_EQ(table.count(1), 0U);
}

TEST(KeyMap, BehavesAsAMapUnderRandomUse) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    KeyMap<std::uint32_t> map;
    std::map<std::uint32_t, std::uint32_t> model;
    for (int i = 0; i < 4000; ++i) {
      const std::uint32_t key = random.below(600) * 0x10000001U;  // keys that collide in their low bits
      if (random.below(2) == 0) {
        EXPECT_EQ(map.erase(key), model.erase(key) != 0);
      } else if (model.emplace(key, i).second) {
        map.insert(key, std::make_unique<std::uint32_t>(i));
      }
      ASSERT_EQ(map.size(), model.size());
    }
    for (std::uint32_t k = 0; k < 600; ++k) {
      const std::uint32_t* found = map.find(k * 0x10000001U);
      const auto expected = model.find(k * 0x10000001U);
      ASSERT_EQ(found != nullptr, expected != model.end());
      if (found != nullptr) {
        EXPECT_EQ(*found, expected->second);
      }
    }
  }
}

}  // namespace
}  // namespace tensorwire::transport::test
