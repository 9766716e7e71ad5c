// Byte order, random numbers and the clock: the small tools that every room trusts.
#include <gtest/gtest.h>

#include <array>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/random.hpp"

namespace tensorwire {
namespace {

std::array<std::byte, 8> bytes_of(std::initializer_list<unsigned> values) {
  std::array<std::byte, 8> bytes{};
  std::size_t at = 0;
  for (const unsigned value : values) bytes[at++] = static_cast<std::byte>(value);
  return bytes;
}

TEST(Bytes, BigEndianHasTheHighByteFirst) {
  std::array<std::byte, 8> out{};
  store_be64(out.data(), 0x0102030405060708ULL);
  EXPECT_EQ(out, bytes_of({1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(load_be64(out.data()), 0x0102030405060708ULL);
  EXPECT_EQ(load_be32(out.data()), 0x01020304U);
  EXPECT_EQ(load_be24(out.data()), 0x010203U);
  EXPECT_EQ(load_be16(out.data()), 0x0102U);
  EXPECT_EQ(load_le32(out.data()), 0x04030201U);
}

TEST(Bytes, NarrowStoresTouchOnlyTheirBytes) {
  auto out = bytes_of({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff});
  store_be24(out.data() + 1, 0xaa010203U);  // the high byte of the argument is not part of a 24-bit field
  EXPECT_EQ(out, bytes_of({0xff, 1, 2, 3, 0xff, 0xff, 0xff, 0xff}));
  store_be16(out.data() + 6, 0x0405U);
  store_le32(out.data(), 0x0a0b0c0dU);
  EXPECT_EQ(out, bytes_of({0x0d, 0x0c, 0x0b, 0x0a, 0xff, 0xff, 4, 5}));
}

TEST(Bytes, LoadIsTheInverseOfStore) {
  Random random{1};
  std::array<std::byte, 8> out{};
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t v = random.next();
    store_be64(out.data(), v);
    ASSERT_EQ(load_be64(out.data()), v);
    store_le32(out.data(), static_cast<std::uint32_t>(v));
    ASSERT_EQ(load_le32(out.data()), static_cast<std::uint32_t>(v));
    store_be24(out.data(), static_cast<std::uint32_t>(v) & 0xffffffU);
    ASSERT_EQ(load_be24(out.data()), v & 0xffffffU);
  }
}

TEST(Random, FollowsTheReferenceSequence) {
  Random random{0};  // splitmix64 from seed 0, as its authors' program prints it
  EXPECT_EQ(random.next(), 0xe220a8397b1dcdafULL);
  EXPECT_EQ(random.next(), 0x6e789e6aa1b965f4ULL);
  EXPECT_EQ(random.next(), 0x06c45d188009454fULL);
}

TEST(Random, BelowIsBoundedAndEven) {
  Random random{3};
  std::array<int, 10> counts{};
  for (int i = 0; i < 100'000; ++i) ++counts.at(random.below(10));
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 500);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(random.below(1), 0U);
}

TEST(Random, ChanceIsPerMillion) {
  Random random{4};
  int hits = 0;
  for (int i = 0; i < 100'000; ++i) hits += random.chance(10'000) ? 1 : 0;
  EXPECT_NEAR(hits, 1'000, 150);
  for (int i = 0; i < 1'000; ++i) EXPECT_FALSE(random.chance(0));
  for (int i = 0; i < 1'000; ++i) EXPECT_TRUE(random.chance(1'000'000));
}

TEST(Random, EntropyDiffersEachTime) { EXPECT_NE(entropy64(), entropy64()); }

TEST(Clock, GoesForwardAndCountsWork) {
  const Ps before = monotonic_now();
  const Ps cpu_before = process_cpu_time();
  EXPECT_GE(before, 0);
  Random random{5};
  while (process_cpu_time() - cpu_before < kMillisecond) (void)random.next();
  EXPECT_GE(monotonic_now() - before, kMillisecond / 2);
}

}  // namespace
}  // namespace tensorwire
