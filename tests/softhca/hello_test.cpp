#include "softhca/hello.hpp"

#include <gtest/gtest.h>

#include "softhca/peers.hpp"

namespace tensorwire::softhca {
namespace {

constexpr wire::Flow kFlow = wire::ipv4_flow(0x7f000001, 0x7f000002, 0xc001, wire::kRoceUdpPort);

TEST(Hello, ComesBackAsItWas) {
  const Hello hello{
      .answer_wanted = true, .sender_slot = 3, .receiver_slot = 255, .sharers = 7, .receive_buffer_bytes = 8ULL << 20};
  for (const wire::Flow& flow :
       {kFlow, wire::Flow{*wire::parse_gid("fe80::1"), *wire::parse_gid("fe80::2"), 0xc001, wire::kRoceUdpPort}}) {
    const auto parsed = parse_hello(encode_hello(hello, flow), flow);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(*parsed, hello);
  }
}

TEST(Hello, EveryFlippedBitIsNoticed) {
  const auto good = encode_hello(
      {.answer_wanted = false, .sender_slot = 1, .receiver_slot = 2, .sharers = 3, .receive_buffer_bytes = 212'992},
      kFlow);
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    if (bit / 8 == 4) continue;  // BTH byte 4: routers may change it, so the ICRC does not cover it
    auto bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(parse_hello(bad, kFlow)) << "bit " << bit;
  }
}

TEST(Hello, BelongsToItsFlowAndItsLength) {
  const auto good = encode_hello({}, kFlow);
  wire::Flow other = kFlow;
  other.source.bytes[15] ^= 1;
  EXPECT_FALSE(parse_hello(good, other));
  EXPECT_FALSE(parse_hello(std::span{good}.first(good.size() - 1), kFlow));
  EXPECT_FALSE(parse_hello({}, kFlow));
}

TEST(Hello, ItsOpcodeIsNobodysOpcode) { EXPECT_FALSE(wire::traits(std::to_integer<std::uint8_t>(kHelloOpcode)).known); }

/// Three senders of a four-rank group fill a stock buffer with single packets, each at its real cost: all must fit.
TEST(Window, FourRanksFitAStockBuffer) {
  constexpr std::uint64_t kTruesizeOf4KPacket = 8520;
  const std::uint64_t window = window_for(kStockReceiveBuffer, 3);
  EXPECT_GE(window, 2U * 4096) << "at least two packets, or nothing overlaps";
  EXPECT_LT(3 * (window / 4096 + 1) * kTruesizeOf4KPacket, kStockReceiveBuffer);
}

TEST(Window, MoreSharersGetLess) {
  EXPECT_EQ(window_for(8 << 20, 1), window_for(8 << 20, 3));
  EXPECT_GT(window_for(8 << 20, 3), window_for(8 << 20, 7));
}

}  // namespace
}  // namespace tensorwire::softhca
