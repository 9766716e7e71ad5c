// Two Hcas exchange messages over UDP, in one process and between two.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.hpp"
#include "endpoint.hpp"

namespace tensorwire::softhca::testing {
namespace {

void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  Random random{seed};
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
}

class Exchange : public ::testing::TestWithParam<LinkChoice> {
 protected:
  static Endpoint::Settings settings() {
    Endpoint::Settings with;
    with.link = GetParam();
    return with;
  }
};

TEST_P(Exchange, WriteWithImmediateArrivesWholeInEverySize) {
  Endpoint a{open_at(loopback_device(), test_address(0), {}), settings()};
  Endpoint b{open_at(loopback_device(), test_address(1), {}), settings()};
  ASSERT_EQ(a.connect(b.address()), 0);
  ASSERT_EQ(b.connect(a.address()), 0);
  fill(a.memory, 1);

  std::uint32_t immediate = 0;
  for (const std::uint32_t bytes : {0U, 1U, 3U, 64U, 4095U, 4096U, 4097U, 8192U, 65536U, 131072U, 262144U, 1048576U}) {
    SCOPED_TRACE(bytes);
    std::ranges::fill(b.memory, std::byte{0});
    ASSERT_EQ(b.post_receives(1), 0);
    ASSERT_EQ(a.write_imm(b.address(), 0, bytes, ++immediate), 0);
    const auto arrived = b.next();
    ASSERT_TRUE(arrived);
    EXPECT_EQ(arrived->status, transport::WcStatus::kSuccess);
    EXPECT_EQ(arrived->opcode, transport::WcOpcode::kRecvWithImm);
    EXPECT_EQ(arrived->immediate, immediate);
    EXPECT_EQ(arrived->byte_len, bytes);
    EXPECT_TRUE(std::equal(a.memory.begin(), a.memory.begin() + bytes, b.memory.begin()));
    EXPECT_TRUE(std::all_of(b.memory.begin() + bytes, b.memory.end(), [](std::byte x) { return x == std::byte{0}; }));
    const auto sent = a.next();
    ASSERT_TRUE(sent);
    EXPECT_EQ(sent->status, transport::WcStatus::kSuccess);
  }
  EXPECT_EQ(a.counter("retransmitted_packets"), 0U);
  EXPECT_EQ(b.counter("rx_icrc_encapsulated"), 0U);
}

INSTANTIATE_TEST_SUITE_P(Links, Exchange, ::testing::Values(LinkChoice::kPackets, LinkChoice::kAuto),
                         [](const auto& param) { return param.param == LinkChoice::kPackets ? "Packets" : "Auto"; });

}  // namespace
}  // namespace tensorwire::softhca::testing
