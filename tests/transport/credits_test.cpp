// End-to-end credits: a peer that counts its receive WQEs is sent no more SENDs than it has room for, but for one
// packet at a time to ask with.
#include <gtest/gtest.h>

#include <array>

#include "lab.hpp"

namespace tensorwire::transport::test {
namespace {

using wire::Opcode;

class Credits : public testing::Test {
 protected:
  Lab lab;
  Buffer bytes = lab.host.buffer(1 << 16);

  void send(std::uint32_t length = 8, WrOpcode opcode = WrOpcode::kSend) {
    const std::array sges = {bytes.sge(0, length)};
    SendWr wr = write_wr(1, sges, 0x1000, 0x2000);
    wr.opcode = opcode;
    ASSERT_EQ(lab.end.send(wr, lab.now), 0);
  }
  RxVerdict ack(std::uint32_t n, std::uint32_t msn, std::uint8_t credit_code) {
    wire::Headers h = Lab::acknowledge(static_cast<std::uint8_t>(wire::kSyndromeAck | credit_code), lab.psn(n));
    h.msn = msn;
    return lab.receive(h);
  }
};

TEST_F(Credits, NoLimitUntilOneIsGivenAndNoneAfterwards) {
  for (int i = 0; i < 10; ++i) send();
  EXPECT_EQ(lab.pull().size(), 10U);
  ack(0, 1, 2);
  ack(9, 10, wire::kCreditsInvalid);
  for (int i = 0; i < 10; ++i) send();
  EXPECT_EQ(lab.pull().size(), 10U);
}

TEST_F(Credits, AsManySendsAsTheMsnAndTheCountAllow) {
  send();
  lab.pull();
  ack(0, 1, 4);  // code 4 is 4 receive WQEs
  for (int i = 0; i < 10; ++i) send();
  EXPECT_EQ(lab.pull().size(), 4U);
  ack(2, 3, 3);  // two were taken, one was posted
  EXPECT_EQ(lab.pull().size(), 1U);
  ack(5, 6, 5);  // code 5 is 6
  EXPECT_EQ(lab.pull().size(), 5U);
}

TEST_F(Credits, WithoutCreditsOnePacketAtATimeAsks) {
  send();
  lab.pull();
  ack(0, 1, 0);
  send(2050);
  send();
  for (std::uint32_t n = 1; n <= 4; ++n) {
    const auto sent = lab.pull();
    ASSERT_EQ(sent.size(), 1U) << n;
    EXPECT_TRUE(sent[0].headers.ack_req);
    EXPECT_EQ(sent[0].headers.psn, lab.psn(n));
    ack(n, n < 3 ? 1 : n - 1, 0);
  }
  EXPECT_EQ(lab.end.poll().size(), 3U);
}

TEST_F(Credits, WritesAndReadsNeedNone) {
  send();
  lab.pull();
  ack(0, 1, 0);
  for (int i = 0; i < 5; ++i) send(3000, WrOpcode::kWrite);
  send(8, WrOpcode::kRead);
  EXPECT_EQ(lab.pull().size(), 16U);
  // The SSNs of all of them count: MSN 7, one credit.
  send(3000, WrOpcode::kWriteImm);
  EXPECT_EQ(lab.pull().size(), 2U);  // only its last packet needs a receive WQE
  wire::Headers response = Lab::response(Opcode::kRcReadResponseOnly, lab.psn(16));
  response.msn = 7;
  response.syndrome = wire::kSyndromeAck | 1;
  lab.receive(response, 8);
  EXPECT_EQ(lab.pull().size(), 1U);
}

TEST_F(Credits, AnUnsolicitedAckBringsNewOnes) {
  send();
  lab.pull();
  ack(0, 1, 0);
  for (int i = 0; i < 4; ++i) send();
  EXPECT_EQ(lab.pull().size(), 1U);
  ack(0, 1, 3);  // the same PSN again: receives were posted
  EXPECT_EQ(lab.pull().size(), 2U);
  lab.ack(3);
  EXPECT_EQ(lab.pull().size(), 1U);
  EXPECT_EQ(ack(0, 1, 3).drop, DropReason::kStale);
}

}  // namespace
}  // namespace tensorwire::transport::test
