#include "base/units.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/random.hpp"

namespace tensorwire {
namespace {

template <typename Parse>
std::string reason(Parse parse, std::string_view text) {
  try {
    (void)parse(text);
  } catch (const Error& error) {
    return error.parts().why;
  }
  return "no error";
}

TEST(Units, ReadsSizes) {
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes("4096"), 4'096U);
  EXPECT_EQ(parse_bytes("17B"), 17U);
  EXPECT_EQ(parse_bytes("256KiB"), 262'144U);
  EXPECT_EQ(parse_bytes("256 KiB"), 262'144U);
  EXPECT_EQ(parse_bytes("256K"), 262'144U);
  EXPECT_EQ(parse_bytes("1.5MiB"), 1'572'864U);
  EXPECT_EQ(parse_bytes("64kB"), 64'000U);
  EXPECT_EQ(parse_bytes("0.5KiB"), 512U);
  EXPECT_EQ(parse_bytes("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(parse_bytes("16383.5T"), 16383 * (1ULL << 40) + (1ULL << 39));
}

TEST(Units, SizeErrorsSayWhatIsWrong) {
  EXPECT_EQ(reason(parse_bytes, ""), "it does not begin with a number");
  EXPECT_EQ(reason(parse_bytes, "-1"), "it does not begin with a number");
  EXPECT_EQ(reason(parse_bytes, ".5KiB"), "it does not begin with a number");
  EXPECT_EQ(reason(parse_bytes, "1.KiB"), "no digit follows the point");
  EXPECT_EQ(reason(parse_bytes, "12 kiloB"), "unknown unit \"kiloB\"");
  EXPECT_EQ(reason(parse_bytes, "12  KiB"), "unknown unit \" KiB\"");
  EXPECT_EQ(reason(parse_bytes, "1.2.3K"), "unknown unit \".3K\"");
  EXPECT_EQ(reason(parse_bytes, "0.3KiB"), "not a whole number of bytes");
  EXPECT_EQ(reason(parse_bytes, "18446744073709551616"), "the number is too large");
  EXPECT_EQ(reason(parse_bytes, "16777216TiB"), "the number is too large");
}

TEST(Units, ReadsDurations) {
  EXPECT_EQ(parse_duration("0"), 0);
  EXPECT_EQ(parse_duration("75us"), 75 * kMicrosecond);
  EXPECT_EQ(parse_duration("1.5 ms"), 1'500 * kMicrosecond);
  EXPECT_EQ(parse_duration("4.096us"), 4'096 * kNanosecond);
  EXPECT_EQ(parse_duration("1ps"), 1);
  EXPECT_EQ(parse_duration("2min"), 120 * kSecond);
}

TEST(Units, DurationErrorsSayWhatIsWrong) {
  EXPECT_EQ(reason(parse_duration, "75"), "the unit is missing");
  EXPECT_EQ(reason(parse_duration, "75u"), "unknown unit \"u\"");
  EXPECT_EQ(reason(parse_duration, "0.5ps"), "not a whole number of picoseconds");
  EXPECT_EQ(reason(parse_duration, "10000000s"), "longer than 106 days");
}

TEST(Units, ErrorLineQuotesTheTextAndShowsHowToWriteIt) {
  try {
    (void)parse_duration("75");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "read duration \"75\": the unit is missing. Write a number and one of ps, ns, us, ms, s, min: "
                 "75us, 1.5ms, 2s");
  }
}

TEST(Units, PrintsSizes) {
  EXPECT_EQ(format_bytes(0), "0B");
  EXPECT_EQ(format_bytes(1000), "1000B");
  EXPECT_EQ(format_bytes(262'144), "256KiB");
  EXPECT_EQ(format_bytes(3ULL << 40), "3TiB");
  EXPECT_EQ(format_bytes(1ULL << 52), "4096TiB");
}

TEST(Units, PrintsDurations) {
  EXPECT_EQ(format_duration(0), "0");
  EXPECT_EQ(format_duration(999), "999ps");
  EXPECT_EQ(format_duration(75 * kMicrosecond), "75us");
  EXPECT_EQ(format_duration(1'234'567), "1.235us");
  EXPECT_EQ(format_duration(1'500 * kMicrosecond), "1.5ms");
  EXPECT_EQ(format_duration(-2 * kSecond), "-2s");
  EXPECT_EQ(format_duration(kNever), "never");
  EXPECT_EQ(format_duration(999'999'999), "1000us");
}

TEST(Units, WhatIsPrintedReadsBackTheSame) {
  Random random{20261129};
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t bytes = random.next() >> random.below(64);
    ASSERT_EQ(parse_bytes(format_bytes(bytes)), bytes);
    const Ps whole = static_cast<Ps>(random.below(1'000)) * kNanosecond;  // three decimals hold every nanosecond of us
    ASSERT_EQ(parse_duration(format_duration(whole)), whole);
  }
}

TEST(Units, AnyTextEitherReadsOrIsAnError) {
  constexpr std::string_view kAlphabet = "0123456789..KMGTiBkmunps -";
  Random random{7};
  int readable = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string text(random.below(8), ' ');
    for (char& c : text) c = kAlphabet[random.below(static_cast<std::uint32_t>(kAlphabet.size()))];
    try {
      (void)parse_bytes(text);
      ++readable;
    } catch (const Error&) {
    }
    try {
      ASSERT_GE(parse_duration(text), 0) << text;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(readable, 20);
}

}  // namespace
}  // namespace tensorwire
