// Memory windows as the table knows them: who may bind what, what may be reached through a window, who may invalidate
// it.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "transport/memory.hpp"

namespace tensorwire::transport::test {
namespace {

constexpr PdId kPd = 3;
constexpr std::uint32_t kQpn = 0x42;
constexpr std::uint64_t kBegin = 0x1000;
constexpr std::uint64_t kBytes = 0x1000;
constexpr std::uint64_t kTopOfMemory = std::numeric_limits<std::uint64_t>::max();

constexpr std::uint32_t with_tag(std::uint32_t key, std::uint32_t tag) { return (key & ~0xffU) | (tag & 0xffU); }

class MemoryWindows : public ::testing::Test {
 protected:
  std::uint32_t region(std::uint32_t access = kAccessLocalWrite | kAccessWindowBind, PdId pd = kPd) {
    return table.add({kBegin, kBytes, 0x8000, access, 0, pd, nullptr}).key;
  }
  [[nodiscard]] WindowBinding binding(std::uint64_t address = kBegin + 0x100, std::uint64_t length = 0x200,
                                      std::uint32_t access = kAccessRemote) const {
    return {address, length, lkey, access};
  }
  AccessResult check(std::uint32_t key, std::uint64_t address, std::uint64_t length, std::uint32_t rights = 0,
                     PdId pd = kPd, std::uint32_t qpn = kQpn) {
    return table.check_window(key, pd, qpn, address, length, rights, piece);
  }

  MemoryTable table{1};
  std::uint32_t lkey = region();
  Piece piece{};
};

TEST_F(MemoryWindows, OpensExactlyWhatItWasBoundTo) {
  const std::uint32_t key = table.add_window(kPd, WindowType::k2);
  EXPECT_EQ(check(key, kBegin + 0x100, 1), AccessResult::kBadKey) << "bound to nothing";
  ASSERT_TRUE(table.bind(key, binding(kBegin + 0x100, 0x200, kAccessRemoteWrite), kPd, kQpn));
  EXPECT_EQ(check(key, kBegin + 0x110, 0x20, kAccessRemoteWrite), AccessResult::kOk);
  EXPECT_EQ(piece.mr, table.find(lkey));
  EXPECT_EQ(piece.address, 0x8110U);
  EXPECT_EQ(piece.length, 0x20U);
  EXPECT_EQ(check(key, kBegin + 0x100, 0x200), AccessResult::kOk);
  EXPECT_EQ(check(key, kBegin + 0x0ff, 1), AccessResult::kOutOfRange);
  EXPECT_EQ(check(key, kBegin + 0x2ff, 2), AccessResult::kOutOfRange);
  EXPECT_EQ(check(key, kBegin + 0x100, 0x201), AccessResult::kOutOfRange);
  EXPECT_EQ(check(key, kTopOfMemory, 2), AccessResult::kOutOfRange);
  EXPECT_EQ(check(key, kBegin + 0x100, 1, kAccessRemoteRead), AccessResult::kNoRight);
  EXPECT_EQ(check(key, kBegin + 0x100, 1, kAccessRemoteAtomic), AccessResult::kNoRight);
  EXPECT_EQ(check(key, kBegin + 0x100, 1, 0, kPd + 1), AccessResult::kWrongPd);
  EXPECT_EQ(check(key, kBegin + 0x100, 1, 0, kPd, kQpn + 1), AccessResult::kWrongPd);
  EXPECT_EQ(check(with_tag(key, key + 1), kBegin + 0x100, 1), AccessResult::kBadKey);
}

TEST_F(MemoryWindows, IsNoKeyForLocalAccess) {
  const std::uint32_t key = table.add_window(kPd, WindowType::k2);
  ASSERT_TRUE(table.bind(key, binding(), kPd, kQpn));
  EXPECT_EQ(table.check(key, kPd, kBegin + 0x100, 1, 0, piece), AccessResult::kBadKey);
  EXPECT_FALSE(table.bind(table.add_window(kPd, WindowType::k2), {kBegin + 0x100, 1, key, 0}, kPd, kQpn));
}

TEST_F(MemoryWindows, TheBinderChoosesTheTag) {
  const std::uint32_t first = table.add_window(kPd, WindowType::k2);
  for (const std::uint32_t tag : {0U, 1U, 0x7fU, 0xffU}) {
    const std::uint32_t key = with_tag(first, tag);
    ASSERT_TRUE(table.bind(key, binding(), kPd, kQpn));
    EXPECT_EQ(check(key, kBegin + 0x100, 1), AccessResult::kOk);
    EXPECT_EQ(check(with_tag(key, tag + 1), kBegin + 0x100, 1), AccessResult::kBadKey);
    EXPECT_FALSE(table.invalidate(with_tag(key, tag + 1), kPd, kQpn));
    ASSERT_TRUE(table.invalidate(key, kPd, kQpn));
    EXPECT_EQ(check(key, kBegin + 0x100, 1), AccessResult::kBadKey);
  }
}

TEST_F(MemoryWindows, WhatCannotBeBound) {
  const std::uint32_t key = table.add_window(kPd, WindowType::k2);
  const std::uint32_t type1 = table.add_window(kPd, WindowType::k1);
  const std::uint32_t no_bind = region(kAccessLocalWrite);
  const std::uint32_t read_only = region(kAccessWindowBind);
  const std::uint32_t foreign = region(kAccessLocalWrite | kAccessWindowBind, kPd + 1);
  const auto refused = [&](const WindowBinding& what, std::uint32_t window = 0, PdId pd = kPd) {
    return !table.bind(window == 0 ? key : window, what, pd, kQpn);
  };
  EXPECT_TRUE(refused(binding(), key ^ 0x100)) << "no such window";
  EXPECT_TRUE(refused(binding(), key, kPd + 1)) << "a queue pair of another domain (C10-72)";
  EXPECT_TRUE(refused({kBegin, 1, lkey ^ 1, 0})) << "no such region";
  EXPECT_TRUE(refused({kBegin, 1, foreign, 0})) << "a region of another domain";
  EXPECT_TRUE(refused({kBegin, 1, no_bind, 0})) << "a region without the right (C10-73)";
  EXPECT_TRUE(refused({kBegin, 1, read_only, kAccessRemoteWrite})) << "not writable here, but from there (C10-74)";
  EXPECT_TRUE(refused({kBegin, 1, read_only, kAccessRemoteAtomic})) << "C10-74";
  EXPECT_TRUE(refused(binding(kBegin - 1, 2))) << "C10-75";
  EXPECT_TRUE(refused(binding(kBegin, kBytes + 1))) << "C10-75";
  EXPECT_TRUE(refused(binding(kBegin + kBytes - 1, 2))) << "C10-75";
  EXPECT_TRUE(refused(binding(kTopOfMemory, 2)));
  EXPECT_TRUE(refused(binding(kBegin, kTopOfMemory)));
  EXPECT_TRUE(refused(binding(kBegin, 1, kAccessLocalWrite))) << "not a remote right";
  EXPECT_TRUE(refused(binding(kBegin, 0))) << "type 2 is not closed by a binding (o10-37.2.40)";
  EXPECT_TRUE(table.remove(lkey)) << "nothing was bound to it";
  lkey = region();

  EXPECT_FALSE(refused({kBegin, 1, read_only, kAccessRemoteRead}));
  EXPECT_TRUE(refused(binding())) << "type 2 is bound already (o10-37.2.30)";
  EXPECT_FALSE(refused(binding(kBegin, kBytes), type1)) << "all of it";
  EXPECT_FALSE(refused(binding(), type1)) << "type 1 is bound anew at will";
}

TEST_F(MemoryWindows, TypeOneServesItsDomainAndIsClosedByABindingOfNothing) {
  const std::uint32_t key = table.add_window(kPd, WindowType::k1);
  ASSERT_TRUE(table.bind(key, binding(), kPd, kQpn));
  EXPECT_EQ(check(key, kBegin + 0x100, 1, 0, kPd, kQpn + 1), AccessResult::kOk);
  EXPECT_FALSE(table.can_invalidate(key, kPd, kQpn)) << "o10-37.2.26";
  EXPECT_FALSE(table.invalidate(key, kPd, kQpn));
  const std::uint32_t next = with_tag(key, key + 1);
  ASSERT_TRUE(table.bind(next, {0, 0, 0, 0}, kPd, kQpn));
  EXPECT_EQ(check(key, kBegin + 0x100, 1), AccessResult::kBadKey);
  EXPECT_EQ(check(next, kBegin + 0x100, 1), AccessResult::kBadKey);
  EXPECT_EQ(check(next, 0, 0), AccessResult::kBadKey);
  EXPECT_TRUE(table.remove(lkey));
}

TEST_F(MemoryWindows, OnlyItsQueuePairInvalidatesIt) {
  const std::uint32_t key = table.add_window(kPd, WindowType::k2);
  EXPECT_FALSE(table.can_invalidate(key, kPd, kQpn)) << "not bound";
  ASSERT_TRUE(table.bind(key, binding(), kPd, kQpn));
  EXPECT_FALSE(table.can_invalidate(lkey, kPd, kQpn)) << "a region";
  EXPECT_FALSE(table.can_invalidate(key, kPd + 1, kQpn));
  EXPECT_FALSE(table.can_invalidate(key, kPd, kQpn + 1));
  EXPECT_FALSE(table.can_invalidate(with_tag(key, key + 1), kPd, kQpn));
  EXPECT_TRUE(table.can_invalidate(key, kPd, kQpn));
  EXPECT_EQ(check(key, kBegin + 0x100, 1), AccessResult::kOk) << "asking changes nothing";
  EXPECT_TRUE(table.invalidate(key, kPd, kQpn));
  EXPECT_FALSE(table.invalidate(key, kPd, kQpn)) << "once";
  EXPECT_TRUE(table.bind(key, binding(), kPd, kQpn + 1)) << "free for whoever comes";
}

TEST_F(MemoryWindows, RegionsStayWhileWindowsAreBoundToThem) {
  const std::uint32_t first = table.add_window(kPd, WindowType::k2);
  const std::uint32_t second = table.add_window(kPd, WindowType::k1);
  ASSERT_TRUE(table.bind(first, binding(), kPd, kQpn));
  ASSERT_TRUE(table.bind(second, binding(), kPd, kQpn));
  ASSERT_TRUE(table.bind(second, binding(), kPd, kQpn)) << "again: still one";
  EXPECT_FALSE(table.remove(lkey));
  ASSERT_TRUE(table.invalidate(first, kPd, kQpn));
  EXPECT_FALSE(table.remove(lkey));
  EXPECT_TRUE(table.remove_window(with_tag(second, 7))) << "bound, and by any tag";
  EXPECT_FALSE(table.remove_window(second));
  EXPECT_TRUE(table.remove(lkey));
}

TEST_F(MemoryWindows, AQueuePairThatGoesLeavesItsWindowsUnbound) {
  const std::uint32_t mine = table.add_window(kPd, WindowType::k2);
  const std::uint32_t other = table.add_window(kPd, WindowType::k2);
  const std::uint32_t shared = table.add_window(kPd, WindowType::k1);
  ASSERT_TRUE(table.bind(mine, binding(), kPd, kQpn));
  ASSERT_TRUE(table.bind(other, binding(), kPd, kQpn + 1));
  ASSERT_TRUE(table.bind(shared, binding(), kPd, kQpn));
  table.unbind_all(kQpn);
  EXPECT_EQ(check(mine, kBegin + 0x100, 1), AccessResult::kBadKey);
  EXPECT_EQ(check(other, kBegin + 0x100, 1, 0, kPd, kQpn + 1), AccessResult::kOk);
  EXPECT_EQ(check(shared, kBegin + 0x100, 1), AccessResult::kOk) << "type 1 belongs to the domain";
}

TEST_F(MemoryWindows, KeysOfWindowsAndRegionsAreNeverTheSame) {
  std::set<std::uint32_t> windows;
  for (int i = 0; i < 2000; ++i) {
    const std::uint32_t key = table.add_window(kPd, WindowType::k2);
    ASSERT_NE(window_of(key), 0U);
    EXPECT_TRUE(windows.insert(window_of(key)).second);
  }
  EXPECT_EQ(table.count(kPd), 2001U);
  for (int i = 0; i < 20'000; ++i) EXPECT_FALSE(windows.contains(window_of(region())));
}

TEST_F(MemoryWindows, ThereIsALimit) {
  for (std::size_t i = 0; i < kMaxWindows; ++i) ASSERT_NE(table.add_window(kPd, WindowType::k1), 0U);
  EXPECT_EQ(table.add_window(kPd, WindowType::k1), 0U);
}

}  // namespace
}  // namespace tensorwire::transport::test
