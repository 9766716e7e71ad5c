#include "cli/bench/exchange.hpp"

#include <gtest/gtest.h>

#include "collective/builders.hpp"

namespace tensorwire::cli {
namespace {

using collective::Algorithm;

ExchangePattern pattern(Algorithm algorithm, std::uint32_t ranks, std::uint64_t count, std::uint32_t rank) {
  return exchange_pattern(collective::build_plan({ranks, count, collective::DType::kFloat16}, algorithm), rank);
}

TEST(Exchange, OneShotSendsEverythingToEveryoneInOnePhase) {
  const ExchangePattern bytes = pattern(Algorithm::kOneShot, 3, 1000, 1);
  ASSERT_EQ(bytes.size(), 1U);
  EXPECT_EQ(bytes[0].send_bytes, (std::vector<std::uint64_t>{2064, 0, 2064}));
  EXPECT_EQ(bytes[0].receive_bytes, (std::vector<std::uint64_t>{2064, 0, 2064}));
}

TEST(Exchange, TwoShotMovesTheTensorTwiceOverInChunks) {
  const std::uint64_t count = 131072;
  const ExchangePattern bytes = pattern(Algorithm::kTwoShot, 2, count, 0);
  ASSERT_EQ(bytes.size(), 2U);
  EXPECT_EQ(bytes[0].send_bytes[1], count + collective::kSlotHeaderBytes);  // half the elements, two bytes each
  EXPECT_EQ(bytes[1].send_bytes[1], count);
}

TEST(Exchange, WhatOneSendsAnotherReceives) {
  for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kTwoShot}) {
    for (std::uint32_t from = 0; from < 5; ++from) {
      const ExchangePattern sender = pattern(algorithm, 5, 1237, from);
      for (std::uint32_t to = 0; to < 5; ++to) {
        const ExchangePattern receiver = pattern(algorithm, 5, 1237, to);
        for (std::size_t phase = 0; phase < sender.size(); ++phase) {
          EXPECT_EQ(sender[phase].send_bytes[to], receiver[phase].receive_bytes[from]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tensorwire::cli
