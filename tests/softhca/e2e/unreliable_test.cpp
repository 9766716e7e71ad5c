// UC queue pairs of two Hcas over UDP: whole messages or nothing.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.hpp"
#include "endpoint.hpp"

namespace tensorwire::softhca::testing {
namespace {

Endpoint::Settings unreliable() {
  Endpoint::Settings with;
  with.type = transport::QpType::kUc;
  with.mtu = transport::MtuCode::k1024;
  return with;
}

/// One end writes, the other one is written to. Receives are posted and counted by the test.
struct UnreliablePair {
  explicit UnreliablePair(HcaOptions to_a = {}, HcaOptions to_b = {})
      : a(open_at(loopback_device(), test_address(0), std::move(to_a)), unreliable()),
        b(open_at(loopback_device(), test_address(1), std::move(to_b)), unreliable()) {
    Random random{7};
    for (std::byte& byte : a.memory) byte = static_cast<std::byte>(random.next());
    if (a.connect(b.address()) != 0 || b.connect(a.address()) != 0) throw std::runtime_error("connect");
  }

  /// A WRITE WITH IMMEDIATE of the first `bytes`; true when it arrived.
  bool write(std::uint32_t bytes, std::uint32_t immediate) {
    if (a.write_imm(b.address(), 0, bytes, immediate) != 0) throw std::runtime_error("write");
    const auto sent = a.next();
    EXPECT_TRUE(sent && sent->status == transport::WcStatus::kSuccess && sent->wr_id == immediate);
    const auto arrived = b.next(50 * kMillisecond);
    if (!arrived) return false;
    EXPECT_EQ(arrived->status, transport::WcStatus::kSuccess);
    EXPECT_EQ(arrived->immediate, immediate);
    EXPECT_EQ(arrived->byte_len, bytes);
    EXPECT_TRUE(std::equal(a.memory.begin(), a.memory.begin() + bytes, b.memory.begin()));
    return true;
  }

  Endpoint a;
  Endpoint b;
};

TEST(Unreliable, ArrivesWholeInEverySize) {
  UnreliablePair pair;
  std::uint32_t immediate = 0;
  for (const std::uint32_t bytes : {0U, 1U, 3U, 1023U, 1024U, 1025U, 10'000U, 65'536U}) {
    SCOPED_TRACE(bytes);
    std::ranges::fill(pair.b.memory, std::byte{0});
    ASSERT_EQ(pair.b.post_receives(1), 0);
    // A full socket loses packets, and nothing sends them again: that is what the service is.
    int tries = 1;
    while (!pair.write(bytes, ++immediate) && tries < 20) ++tries;
    EXPECT_LT(tries, 20);
    EXPECT_TRUE(std::all_of(pair.b.memory.begin() + bytes, pair.b.memory.end(),
                            [](std::byte byte) { return byte == std::byte{0}; }));
  }
  EXPECT_EQ(pair.a.counter("retransmitted_packets"), 0U);
  EXPECT_EQ(pair.b.counter("port_xmit_packets"), 0U);
}

TEST(Unreliable, TakesPacketsAlsoOnThisHost) {
  UnreliablePair pair;
  EXPECT_EQ(pair.a.hca->link_description(pair.a.qp), "RoCEv2 packets (unreliable connection)");
}

TEST(Unreliable, LossLosesMessagesAndNothingElse) {
  UnreliablePair pair(faulty("drop=5%", 3), faulty("drop=0%", 4));
  constexpr std::uint32_t kMessages = 200;
  std::uint32_t arrived = 0;
  for (std::uint32_t n = 0; n < kMessages; ++n) {
    while (pair.b.post_receives(1) == 0) {
    }
    if (pair.write(4000, n)) ++arrived;
  }
  EXPECT_GT(arrived, kMessages / 2);
  EXPECT_LT(arrived, kMessages);
  EXPECT_GT(pair.b.counter("out_of_sequence"), 0U);
  EXPECT_EQ(pair.a.hca->state(pair.a.qp), transport::QpState::kRts);
  EXPECT_EQ(pair.b.hca->state(pair.b.qp), transport::QpState::kRts);
}

}  // namespace
}  // namespace tensorwire::softhca::testing
