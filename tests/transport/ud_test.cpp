// UD: datagrams to any address and from any, Q_Keys, the network header before the payload, and what an error is not.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>

#include "transport/attributes.hpp"
#include "ud_world.hpp"

namespace tensorwire::transport::test {
namespace {

class UdTest : public testing::Test, protected UdWorld {
 protected:
  End a = datagrams(0);
  End b = datagrams(1);
  Buffer source = a.host->buffer(8192);
  Buffer target = b.host->buffer(8192);
  DatagramAddress to_b = address_of(a, b);

  void SetUp() override { fill(source.bytes, 7); }

  int send(std::uint64_t wr_id, std::size_t bytes, std::uint32_t qkey = kQkey) {
    const std::array sges = {source.sge(0, bytes)};
    return a.send(datagram(wr_id, to_b, b, sges, qkey), world.loop.now());
  }
  int receive(std::uint64_t wr_id, std::size_t bytes = 4096 + kGrh) { return b.receive(wr_id, {target.sge(0, bytes)}); }
  void expect_bytes(std::size_t bytes, std::size_t at = kGrh) {
    EXPECT_TRUE(std::equal(source.bytes.begin(), source.bytes.begin() + bytes, target.bytes.begin() + at));
  }
  const EngineCounters& counters_of(const End& end) { return end.host->engine.counters(); }
};

TEST_F(UdTest, EveryLengthUpToTheMtuWithItsHeader) {
  for (const std::size_t length : {0U, 1U, 2U, 3U, 4U, 255U, 256U, 1023U, 4095U, 4096U}) {
    std::fill(target.bytes.begin(), target.bytes.end(), std::byte{0xee});
    ASSERT_EQ(receive(length), 0);
    ASSERT_EQ(send(100 + length, length), 0);
    world.settle();
    const auto sent = a.poll();
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent[0].status, WcStatus::kSuccess);
    EXPECT_EQ(sent[0].opcode, WcOpcode::kSend);
    EXPECT_EQ(sent[0].wr_id, 100 + length);
    const auto received = b.poll();
    ASSERT_EQ(received.size(), 1U) << length;
    EXPECT_EQ(received[0].status, WcStatus::kSuccess);
    EXPECT_EQ(received[0].opcode, WcOpcode::kRecv);
    EXPECT_EQ(received[0].wr_id, length);
    EXPECT_EQ(received[0].byte_len, length + kGrh);
    EXPECT_EQ(received[0].flags, kWcWithGrh);
    EXPECT_EQ(received[0].qp_num, b.qp->qpn());
    EXPECT_EQ(received[0].src_qp, a.qp->qpn());
    expect_bytes(length);
    EXPECT_EQ(target.bytes[kGrh + length], std::byte{0xee});
    const auto header = wire::parse_network_header(std::span<const std::byte>(target.bytes).first<kGrh>());
    ASSERT_TRUE(header);
    EXPECT_EQ(header->source, a.host->gid);
    EXPECT_EQ(header->destination, b.host->gid);
  }
}

TEST_F(UdTest, HeaderAndPayloadScatterOverAnyList) {
  ASSERT_EQ(b.receive(1, {target.sge(0, 10), target.sge(100, 0), target.sge(200, 50), target.sge(300, 500)}), 0);
  ASSERT_EQ(send(2, 300), 0);
  world.settle();
  ASSERT_EQ(b.poll().size(), 1U);
  expect_bytes(20, 230);  // 10 and 30 bytes of header before
  EXPECT_TRUE(std::equal(source.bytes.begin() + 20, source.bytes.begin() + 300, target.bytes.begin() + 300));
}

TEST_F(UdTest, ImmediateInlineUnsignalledAndSolicited) {
  ASSERT_EQ(receive(1), 0);
  std::array<std::byte, 64> bytes;
  std::copy_n(source.bytes.begin(), bytes.size(), bytes.begin());
  const std::array sges = {Sge{reinterpret_cast<std::uintptr_t>(bytes.data()), 64, 0}};
  SendWr wr = datagram(5, to_b, b, sges);
  wr.opcode = WrOpcode::kSendImm;
  wr.immediate = 0xcafe;
  wr.inline_data = true;
  wr.signaled = false;
  ASSERT_EQ(a.send(wr), 0);
  bytes.fill(std::byte{0});
  to_b = {};  // the address was copied, too
  world.settle();
  EXPECT_TRUE(a.poll().empty());
  const auto received = b.poll();
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0].flags, kWcWithGrh | kWcWithImm);
  EXPECT_EQ(received[0].immediate, 0xcafeU);
  expect_bytes(64);
}

TEST_F(UdTest, OneQueuePairTalksToManyAndHearsMany) {
  const End c = datagrams(2);
  Buffer at_c = c.host->buffer(4096);
  const DatagramAddress to_c = address_of(a, c), c_to_b = address_of(c, b);
  ASSERT_EQ(receive(1), 0);
  ASSERT_EQ(receive(2), 0);
  ASSERT_EQ(c.receive(3, {at_c.sge(0, 4096)}), 0);
  const std::array sges = {source.sge(0, 100)};
  const std::array c_sges = {at_c.sge(0, 50)};
  ASSERT_EQ(a.send(datagram(1, to_b, b, sges)), 0);
  ASSERT_EQ(a.send(datagram(2, to_c, c, sges)), 0);
  ASSERT_EQ(c.send(datagram(3, c_to_b, b, c_sges)), 0);
  world.settle();
  EXPECT_EQ(a.poll().size(), 2U);
  const auto at_b = b.poll();
  ASSERT_EQ(at_b.size(), 2U);
  EXPECT_NE(at_b[0].src_qp, at_b[1].src_qp);
  EXPECT_EQ(c.poll().size(), 2U);
}

TEST_F(UdTest, QueueKeyGuardsTheReceiver) {
  ASSERT_EQ(receive(1), 0);
  ASSERT_EQ(send(1, 10, kQkey + 1), 0);
  world.settle();
  EXPECT_TRUE(b.poll().empty());
  EXPECT_EQ(counters_of(b).qkey_viol_cntr, 1U);
  EXPECT_EQ(counters_of(b).rx_dropped, 1U);
  ASSERT_EQ(a.poll().size(), 1U);  // the sender knows nothing of it
  ASSERT_EQ(UdWorld::modify(b, QpState::kRts, kAttrState | kAttrQkey, kQkey + 1), 0);
  ASSERT_EQ(send(2, 10, kQkey + 1), 0);
  world.settle();
  EXPECT_EQ(b.poll().size(), 1U);
}

TEST_F(UdTest, APrivilegedKeyInARequestMeansTheQueuePairsOwn) {
  ASSERT_EQ(receive(1), 0);
  ASSERT_EQ(receive(2), 0);
  ASSERT_EQ(send(1, 10, 0x80000000U), 0);  // a's own is kQkey
  ASSERT_EQ(send(2, 10, 0xffffffffU), 0);
  world.settle();
  EXPECT_EQ(b.poll().size(), 2U);
}

TEST_F(UdTest, NothingPostedOrTooSmallIsADropThatIsCounted) {
  ASSERT_EQ(send(1, 10), 0);
  world.settle();
  EXPECT_EQ(counters_of(b).out_of_buffer, 1U);
  ASSERT_EQ(receive(1, kGrh + 99), 0);
  ASSERT_EQ(send(2, 100), 0);
  world.settle();
  EXPECT_EQ(counters_of(b).resp_local_length_error, 1U);
  EXPECT_TRUE(b.poll().empty());
  ASSERT_EQ(send(3, 99), 0);  // the buffer is still there
  world.settle();
  EXPECT_EQ(b.poll().size(), 1U);
  EXPECT_EQ(a.poll().size(), 3U);
  EXPECT_EQ(b.qp->state(), QpState::kRts);
}

TEST_F(UdTest, PostingRefusesWhatIsNoDatagram) {
  const std::array sges = {source.sge(0, 1025)};
  const DatagramAddress narrow = address_of(a, b, 1024);
  EXPECT_EQ(a.send(datagram(1, narrow, b, sges)), EINVAL);
  SendWr wr = datagram(1, to_b, b, sges);
  wr.dest_qpn = 1U << 24;
  EXPECT_EQ(a.send(wr), EINVAL);
  wr = datagram(1, to_b, b, sges);
  wr.address = nullptr;
  EXPECT_EQ(a.send(wr), EINVAL);
  for (const WrOpcode opcode : {WrOpcode::kWrite, WrOpcode::kWriteImm, WrOpcode::kRead, WrOpcode::kFetchAdd}) {
    wr = datagram(1, to_b, b, sges);
    wr.opcode = opcode;
    EXPECT_EQ(a.send(wr), EOPNOTSUPP);
  }
  EXPECT_FALSE(a.host->engine.has_tx());
}

TEST_F(UdTest, ASendCompletesWhenItsPacketIsTheLinks) {
  ASSERT_EQ(send(1, 10), 0);
  std::array<TxDesc, 4> batch;
  ASSERT_EQ(a.host->engine.next_tx(0, 1 << 20, batch), 1U);
  EXPECT_TRUE(a.poll().empty());  // the link reads the memory now
  EXPECT_TRUE(a.host->engine.has_tx());
  EXPECT_EQ(a.host->engine.next_tx(0, 1 << 20, batch), 0U);
  EXPECT_EQ(a.poll().size(), 1U);
  EXPECT_FALSE(a.host->engine.has_tx());
  EXPECT_EQ(a.host->engine.next_deadline(), kNever);
}

TEST_F(UdTest, PsnsCountOn) {
  for (int i = 0; i < 4; ++i) ASSERT_EQ(send(1, 10), 0);
  std::array<TxDesc, 8> batch;
  ASSERT_EQ(a.host->engine.next_tx(0, 1 << 20, batch), 4U);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(batch[i].headers.psn, (0xfffffe + i) & 0xffffff);
}

TEST_F(UdTest, ALocalErrorOfASendStopsTheSendQueueOnly) {
  ASSERT_EQ(receive(1), 0);
  ASSERT_EQ(receive(2), 0);
  Sge bad = source.sge(0, 10);
  bad.lkey ^= 1;
  const std::array bad_sges = {bad};
  ASSERT_EQ(send(1, 10), 0);
  ASSERT_EQ(a.send(datagram(2, to_b, b, bad_sges)), 0);
  ASSERT_EQ(send(3, 10), 0);
  world.settle();
  auto done = a.poll();
  ASSERT_EQ(done.size(), 3U);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kLocalProtectionError);
  EXPECT_EQ(done[2].status, WcStatus::kFlushError);
  EXPECT_EQ(a.qp->state(), QpState::kSqe);
  EXPECT_EQ(b.poll().size(), 1U);

  ASSERT_EQ(send(4, 10), 0);  // flushed
  done = a.poll();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status, WcStatus::kFlushError);

  // The receive queue goes on.
  Buffer at_a = a.host->buffer(1024);
  ASSERT_EQ(a.receive(9, {at_a.sge(0, 1024)}), 0);
  const std::array sges = {target.sge(0, 10)};
  const DatagramAddress to_a = address_of(b, a);
  ASSERT_EQ(b.send(datagram(1, to_a, a, sges)), 0);
  world.settle();
  ASSERT_EQ(a.poll().size(), 1U);

  ASSERT_EQ(UdWorld::modify(a, QpState::kRts, kAttrState | kAttrCurState), EINVAL);  // cur_state says RESET
  ASSERT_EQ(UdWorld::modify(a, QpState::kRts, kAttrState), 0);
  ASSERT_EQ(send(5, 10), 0);
  world.settle();
  done = a.poll();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
}

TEST_F(UdTest, MemoryThatIsGoneWhenTheLinkReadsItIsALocalError) {
  for (int i = 0; i < 3; ++i) ASSERT_EQ(send(static_cast<std::uint64_t>(i), 10), 0);
  std::array<TxDesc, 4> batch;
  ASSERT_EQ(a.host->engine.next_tx(0, 1 << 20, batch), 3U);
  a.host->engine.tx_failed(batch[1], 0);
  EXPECT_TRUE(a.poll().empty());
  EXPECT_EQ(a.host->engine.next_tx(0, 1 << 20, batch), 0U);
  const auto done = a.poll();
  ASSERT_EQ(done.size(), 3U);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kLocalProtectionError);
  EXPECT_EQ(done[2].status, WcStatus::kFlushError);
  EXPECT_EQ(a.qp->state(), QpState::kSqe);
}

// The next one was found to be without a source before the link lost this one: the earlier failure is the one that
// counts.
TEST_F(UdTest, AFailureOfTheLinkComesBeforeOneThatWaits) {
  ASSERT_EQ(send(0, 10), 0);
  ASSERT_EQ(send(1, 10), 0);
  const std::array nowhere = {Sge{1, 10, 0x1234'5678}};
  ASSERT_EQ(a.send(datagram(2, address_of(a, b), b, nowhere)), 0);
  std::array<TxDesc, 4> batch;
  ASSERT_EQ(a.host->engine.next_tx(0, 1 << 20, batch), 2U);
  a.host->engine.tx_failed(batch[1], 0);
  a.host->engine.tx_failed(batch[0], 0);
  EXPECT_EQ(a.host->engine.next_tx(0, 1 << 20, batch), 0U);
  const auto done = a.poll();
  ASSERT_EQ(done.size(), 3U);
  EXPECT_EQ(done[0].status, WcStatus::kLocalProtectionError);
  EXPECT_EQ(done[1].status, WcStatus::kFlushError);
  EXPECT_EQ(done[2].status, WcStatus::kFlushError);
}

TEST_F(UdTest, AReceiveBufferThatMayNotBeWrittenIsOurError) {
  Buffer readonly = b.host->buffer(1024, 0);
  ASSERT_EQ(b.receive(1, {readonly.sge(0, 1024)}), 0);
  ASSERT_EQ(receive(2), 0);
  ASSERT_EQ(send(1, 10), 0);
  world.settle();
  const auto done = b.poll();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].status, WcStatus::kLocalProtectionError);
  EXPECT_EQ(done[1].status, WcStatus::kFlushError);
  EXPECT_EQ(b.qp->state(), QpState::kErr);
}

TEST_F(UdTest, ErrorStateFlushesSendsFirst) {
  ASSERT_EQ(receive(1), 0);
  world.loop.pause(1, true);
  const std::array sges = {target.sge(0, 10)};
  const DatagramAddress to_a = address_of(b, a);
  ASSERT_EQ(b.send(datagram(2, to_a, a, sges)), 0);
  ASSERT_EQ(UdWorld::modify(b, QpState::kErr, kAttrState), 0);
  const auto done = b.poll();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].wr_id, 2U);
  EXPECT_EQ(done[1].wr_id, 1U);
  for (const Completion& completion : done) EXPECT_EQ(completion.status, WcStatus::kFlushError);
  EXPECT_FALSE(b.host->engine.has_tx());
}

TEST_F(UdTest, WhatIsWithTheLinkHasBeenSentEvenIfAnErrorFollows) {
  ASSERT_EQ(send(1, 10), 0);
  ASSERT_EQ(send(2, 10), 0);
  std::array<TxDesc, 1> one;
  ASSERT_EQ(a.host->engine.next_tx(0, 1 << 20, one), 1U);
  ASSERT_EQ(UdWorld::modify(a, QpState::kErr, kAttrState), 0);
  const auto done = a.poll();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kFlushError);
  EXPECT_EQ(a.qp->state(), QpState::kErr);
}

TEST_F(UdTest, ResetForgetsAndTheQueuePairLivesAgain) {
  world.loop.pause(0, true);
  for (int i = 0; i < 64; ++i) ASSERT_EQ(send(1, 10), 0);
  EXPECT_EQ(send(1, 10), ENOMEM);
  ASSERT_EQ(UdWorld::modify(a, QpState::kReset, kAttrState), 0);
  EXPECT_FALSE(a.host->engine.has_tx());
  EXPECT_TRUE(a.poll().empty());
  world.loop.pause(0, false);
  ASSERT_EQ(UdWorld::modify(a, QpState::kInit, kUdInitMask), 0);
  ASSERT_EQ(UdWorld::modify(a, QpState::kRtr, kAttrState), 0);
  ASSERT_EQ(UdWorld::modify(a, QpState::kRts, kAttrState | kAttrSqPsn), 0);
  ASSERT_EQ(receive(1), 0);
  ASSERT_EQ(send(7, 10), 0);
  world.settle();
  ASSERT_EQ(a.poll().size(), 1U);
  ASSERT_EQ(b.poll().size(), 1U);
}

TEST_F(UdTest, DestroyWhileAPacketIsWithTheLink) {
  ASSERT_EQ(send(1, 10), 0);
  std::array<TxDesc, 1> one;
  ASSERT_EQ(a.host->engine.next_tx(0, 1 << 20, one), 1U);
  a.host->engine.destroy_qp(*a.qp);
  EXPECT_FALSE(a.host->engine.has_tx());
}

TEST_F(UdTest, StrangersAreDropped) {
  ASSERT_EQ(receive(1), 0);
  wire::Headers h;
  h.opcode = wire::Opcode::kUdSendOnly;
  h.dest_qpn = b.qp->qpn();
  h.qkey = kQkey;
  PacketSource from;
  from.address = host_gid(77);
  const auto reason = [&](const wire::Headers& headers, std::uint32_t bytes = 0) {
    return b.host->engine.classify(headers, bytes, from, 0).drop;
  };
  EXPECT_EQ(reason(h), DropReason::kNone);  // any source is welcome
  wire::Headers other = h;
  other.opcode = wire::Opcode::kRcSendOnly;
  EXPECT_EQ(reason(other), DropReason::kWrongOpcode);
  other = h;
  other.pkey = 0x8001;
  EXPECT_EQ(reason(other), DropReason::kWrongPkey);
  EXPECT_EQ(reason(h, 4097), DropReason::kBadLength);
  from.mtu = kMaxMessageBytes;  // the same-host link
  EXPECT_EQ(reason(h), DropReason::kWrongOpcode);
  from.mtu = 4096;
  const End idle = create(1, QpType::kUd);
  other = h;
  other.dest_qpn = idle.qp->qpn();
  EXPECT_EQ(reason(other), DropReason::kWrongState);
  const auto [x, y] = connect(0, 1, nullptr);
  other = h;
  other.dest_qpn = y.qp->qpn();
  from.address = x.host->gid;
  EXPECT_EQ(reason(other), DropReason::kWrongOpcode);
}

// Loss, duplication and corruption: what arrives is right, and every send completes.
TEST_F(UdTest, AnUnreliableWireLosesDatagramsAndNothingElse) {
  VirtualWire bad;
  bad.lose = bad.duplicate = bad.corrupt = bad.reorder = 100'000;
  bad.seed = 5;
  world.loop.set_wire(bad);
  std::size_t received = 0;
  for (std::uint64_t round = 0; round < 300; ++round) {
    while (receive(1) == 0) {
    }
    const std::size_t bytes = 1 + round * 13 % 4096;
    ASSERT_EQ(send(round, bytes), 0);
    world.settle();
    const auto sent = a.poll();
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent[0].status, WcStatus::kSuccess);
    for (const Completion& completion : b.poll()) {
      ++received;
      EXPECT_EQ(completion.byte_len, bytes + kGrh);
      expect_bytes(bytes);
    }
  }
  EXPECT_GT(received, 200U);
  EXPECT_LT(received, 330U);
}

struct UdStep {
  QpState from;
  QpState to;
  std::uint32_t required;
  std::uint32_t optional;
};

constexpr std::uint32_t kUdInitBits = kAttrPkeyIndex | kAttrPort | kAttrQkey;
constexpr std::array kUdSteps = {
    UdStep{QpState::kReset, QpState::kInit, kUdInitBits, 0},
    UdStep{QpState::kInit, QpState::kInit, 0, kUdInitBits},
    UdStep{QpState::kInit, QpState::kRtr, 0, kAttrPkeyIndex | kAttrQkey},
    UdStep{QpState::kRtr, QpState::kRts, kAttrSqPsn, kAttrCurState | kAttrQkey},
    UdStep{QpState::kRts, QpState::kRts, 0, kAttrCurState | kAttrQkey},
    UdStep{QpState::kRts, QpState::kSqd, 0, kAttrEnSqdAsync},
    UdStep{QpState::kSqd, QpState::kSqd, 0, kAttrPkeyIndex | kAttrQkey},
    UdStep{QpState::kSqd, QpState::kRts, 0, kAttrCurState | kAttrQkey},
    UdStep{QpState::kSqe, QpState::kRts, 0, kAttrCurState | kAttrQkey},
};

TEST(UdModifyRules, EveryMaskBitOfEveryStep) {
  for (const UdStep& step : kUdSteps) {
    for (std::uint32_t bit = 1; bit <= 20; ++bit) {
      const std::uint32_t flag = 1U << bit;
      QpAttr attr;
      attr.state = step.to;
      attr.cur_state = step.from;
      QpState next = QpState::kErr;
      const std::uint32_t base = step.required | kAttrState;
      const bool required = (step.required & flag) != 0;
      const bool legal = !required && (step.optional & flag) != 0;
      EXPECT_EQ(check_modify(step.from, attr, base ^ flag, next, QpType::kUd), legal ? 0 : EINVAL) << bit;
      EXPECT_EQ(check_modify(step.from, attr, base, next, QpType::kUd), 0);
      EXPECT_EQ(next, step.to);
    }
  }
}

TEST(UdModifyRules, OnlyTheStepsOfTheTable) {
  constexpr std::array kStates = {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts,
                                  QpState::kSqd,   QpState::kSqe,  QpState::kErr};
  for (const QpState from : kStates) {
    for (const QpState to : kStates) {
      std::uint32_t mask = kAttrState;
      bool legal = to == QpState::kErr || to == QpState::kReset;
      for (const UdStep& step : kUdSteps) {
        if (step.from != from || step.to != to) continue;
        legal = true;
        mask |= step.required;
      }
      QpAttr attr;
      attr.state = to;
      QpState next = from;
      EXPECT_EQ(check_modify(from, attr, mask, next, QpType::kUd), legal ? 0 : EINVAL)
          << static_cast<int>(from) << "->" << static_cast<int>(to);
    }
  }
}

}  // namespace
}  // namespace tensorwire::transport::test
