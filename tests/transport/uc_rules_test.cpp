// UC packet by packet, with a peer that the test plays: what the peer does wrong is met with silence, and a send is
// done when its last packet has left.
#include <gtest/gtest.h>

#include <array>

#include "uc_lab.hpp"
#include "ud_world.hpp"

namespace tensorwire::transport::test {
namespace {

using wire::Opcode;

constexpr std::uint32_t kMtu = kUcMtu;

class UcLab : public testing::Test {
 protected:
  Lab lab{uc()};
  Buffer target = lab.host.buffer(4096);

  DropReason receive(Opcode opcode, std::uint32_t n, std::uint32_t bytes) {
    wire::Headers h = lab.write(opcode, n, target, length);
    return lab.receive(h, bytes).drop;
  }
  int post(std::uint64_t wr_id, std::size_t bytes = 1024) { return lab.end.receive(wr_id, {target.sge(0, bytes)}); }
  void expect_received(std::uint64_t wr_id, std::uint32_t bytes) {
    const auto done = lab.end.poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, WcStatus::kSuccess);
    EXPECT_EQ(done[0].wr_id, wr_id);
    EXPECT_EQ(done[0].byte_len, bytes);
  }
  void expect_silence() {
    EXPECT_TRUE(lab.end.poll().empty());
    EXPECT_TRUE(lab.pull().empty());
    EXPECT_EQ(lab.end.qp->state(), QpState::kRts);
    for (const auto& [event, qpn] : lab.host.events.all) EXPECT_EQ(event, AsyncEvent::kCommEstablished);
  }

  std::uint32_t length = 3 * kMtu;  ///< that a RETH says
};

TEST_F(UcLab, AGapEndsTheMessageAndTheNextOneTakesItsReceive) {
  ASSERT_EQ(post(1), 0);
  receive(Opcode::kUcSendFirst, 0, kMtu);
  receive(Opcode::kUcSendMiddle, 2, kMtu);  // 1 was lost
  receive(Opcode::kUcSendLast, 3, 10);
  EXPECT_EQ(lab.counters().out_of_sequence, 2U);
  receive(Opcode::kUcSendMiddle, 1, kMtu);  // late: the message is over
  receive(Opcode::kUcSendLast, 2, 10);
  expect_silence();
  receive(Opcode::kUcSendFirst, 4, kMtu);
  receive(Opcode::kUcSendLast, 5, 10);
  expect_received(1, kMtu + 10);
}

TEST_F(UcLab, ALostFirstIsALostMessage) {
  ASSERT_EQ(post(1), 0);
  receive(Opcode::kUcSendMiddle, 1, kMtu);
  receive(Opcode::kUcSendLast, 2, 5);
  expect_silence();
  receive(Opcode::kUcSendOnly, 3, 5);
  expect_received(1, 5);
}

TEST_F(UcLab, ALostLastIsFoundByTheNextFirst) {
  ASSERT_EQ(post(1), 0);
  receive(Opcode::kUcSendFirst, 0, kMtu);
  receive(Opcode::kUcSendOnly, 2, 5);
  expect_received(1, 5);
  // A message that follows in sequence without the other's end ends it, too.
  ASSERT_EQ(post(2), 0);
  receive(Opcode::kUcSendFirst, 3, kMtu);
  receive(Opcode::kUcSendOnly, 4, 6);
  expect_received(2, 6);
  receive(Opcode::kUcSendLast, 4, 6);
  EXPECT_TRUE(lab.end.poll().empty());
}

TEST_F(UcLab, AnyPsnBeginsAMessage) {
  for (const std::uint32_t n : {7U, 7'000'000U, 3U, 0U}) {
    ASSERT_EQ(post(n), 0);
    receive(Opcode::kUcSendFirst, n, kMtu);
    receive(Opcode::kUcSendLast, n + 1, 1);
    expect_received(n, kMtu + 1);
  }
}

TEST_F(UcLab, ARepeatedFirstBeginsAnew) {
  ASSERT_EQ(post(1), 0);
  receive(Opcode::kUcSendFirst, 0, kMtu);
  receive(Opcode::kUcSendFirst, 0, kMtu);
  receive(Opcode::kUcSendLast, 1, 2);
  expect_received(1, kMtu + 2);
}

TEST_F(UcLab, AMiddleOfAnotherKindEndsTheMessage) {
  ASSERT_EQ(post(1), 0);
  receive(Opcode::kUcSendFirst, 0, kMtu);
  receive(Opcode::kUcWriteMiddle, 1, kMtu);
  receive(Opcode::kUcSendLast, 2, 2);
  expect_silence();
}

TEST_F(UcLab, LengthsThatCannotBeEndTheMessage) {
  ASSERT_EQ(post(1), 0);
  receive(Opcode::kUcSendFirst, 0, kMtu - 1);
  receive(Opcode::kUcSendLast, 1, 2);
  receive(Opcode::kUcSendFirst, 2, kMtu);
  receive(Opcode::kUcSendMiddle, 3, kMtu - 4);
  receive(Opcode::kUcSendLast, 4, 2);
  receive(Opcode::kUcSendFirst, 5, kMtu);
  receive(Opcode::kUcSendLast, 6, 0);
  receive(Opcode::kUcSendOnly, 7, kMtu + 1);
  expect_silence();
  EXPECT_EQ(lab.counters().rx_dropped, 6U);
}

TEST_F(UcLab, WithoutAReceiveOrIntoOneThatIsTooShort) {
  receive(Opcode::kUcSendOnly, 0, 5);
  receive(Opcode::kUcSendFirst, 1, kMtu);
  EXPECT_EQ(lab.counters().out_of_buffer, 2U);
  ASSERT_EQ(post(1, kMtu + 10), 0);
  receive(Opcode::kUcSendLast, 2, 5);  // of the message whose First found no receive
  receive(Opcode::kUcSendFirst, 3, kMtu);
  receive(Opcode::kUcSendLast, 4, 11);
  EXPECT_EQ(lab.counters().resp_local_length_error, 1U);
  expect_silence();
  receive(Opcode::kUcSendFirst, 5, kMtu);
  receive(Opcode::kUcSendLast, 6, 10);
  expect_received(1, kMtu + 10);
}

TEST_F(UcLab, AnImmediateWithoutAReceive) {
  receive(Opcode::kUcWriteFirst, 0, kMtu);
  receive(Opcode::kUcWriteMiddle, 1, kMtu);
  receive(Opcode::kUcWriteLastImm, 2, kMtu);
  EXPECT_EQ(lab.counters().out_of_buffer, 1U);
  expect_silence();
  ASSERT_EQ(post(1, 0), 0);
  length = kMtu;
  receive(Opcode::kUcWriteOnlyImm, 3, kMtu);
  expect_received(1, kMtu);
}

TEST_F(UcLab, WhatMayNotBeWritten) {
  wire::Headers h = lab.write(Opcode::kUcWriteOnly, 0, target, 10);
  h.rkey ^= 1;
  lab.receive(h, 10);
  h = lab.write(Opcode::kUcWriteOnly, 1, target, 10);
  h.va = target.address() + target.bytes.size() - 9;
  EXPECT_EQ(lab.classify(h, 10).piece_count, 0U);
  lab.receive(h, 10);
  receive(Opcode::kUcWriteFirst, 2, kMtu);
  lab.host.engine.memory().remove(target.key);
  receive(Opcode::kUcWriteMiddle, 3, kMtu);
  receive(Opcode::kUcWriteLast, 4, kMtu);
  EXPECT_EQ(lab.counters().resp_remote_access_errors, 3U);
  expect_silence();
}

TEST_F(UcLab, AQueuePairThatPermitsNoWrites) {
  Lab closed(uc(kAccessLocalWrite));
  Buffer there = closed.host.buffer(1024);
  EXPECT_EQ(closed.receive(closed.write(Opcode::kUcWriteOnly, 0, there, 10), 10).piece_count, 0U);
  EXPECT_EQ(closed.counters().resp_remote_access_errors, 1U);
  EXPECT_EQ(closed.end.qp->state(), QpState::kRts);
}

TEST_F(UcLab, AWriteThatIsLongerOrShorterThanItsHeaderSays) {
  receive(Opcode::kUcWriteFirst, 0, kMtu);
  receive(Opcode::kUcWriteLast, 1, kMtu);
  receive(Opcode::kUcWriteFirst, 2, kMtu);
  receive(Opcode::kUcWriteMiddle, 3, kMtu);
  receive(Opcode::kUcWriteMiddle, 4, kMtu);
  receive(Opcode::kUcWriteLast, 5, kMtu);
  expect_silence();
  EXPECT_EQ(lab.counters().rx_dropped, 3U);
}

TEST_F(UcLab, NothingIsCopiedBeforeItIsVerified) {
  ASSERT_EQ(post(1), 0);
  for (const auto& [opcode, n] : {std::pair{Opcode::kUcSendFirst, 0U}, std::pair{Opcode::kUcSendMiddle, 1U}}) {
    EXPECT_TRUE(lab.classify(lab.request(opcode, n), kMtu).verify_first);
    receive(opcode, n, kMtu);
  }
}

TEST_F(UcLab, MemoryThatIsGone) {
  ASSERT_EQ(post(1), 0);
  wire::Headers h = lab.write(Opcode::kUcWriteOnly, 0, target, 10);
  lab.host.engine.reject(lab.classify(h, 10), h, 0);
  expect_silence();
  h = lab.request(Opcode::kUcSendOnly, 1);
  lab.host.engine.reject(lab.classify(h, 10), h, 0);
  EXPECT_EQ(lab.end.poll().at(0).status, WcStatus::kLocalProtectionError);
  EXPECT_EQ(lab.end.qp->state(), QpState::kErr);
}

TEST_F(UcLab, OtherServicesAndOtherLinks) {
  ASSERT_EQ(post(1), 0);
  EXPECT_EQ(receive(Opcode::kRcSendOnly, 0, 5), DropReason::kWrongOpcode);
  EXPECT_EQ(receive(Opcode::kRcReadRequest, 0, 0), DropReason::kWrongOpcode);
  EXPECT_EQ(receive(Opcode::kRcAck, 0, 0), DropReason::kWrongOpcode);
  EXPECT_EQ(receive(Opcode::kUdSendOnly, 0, 5), DropReason::kWrongOpcode);
  wire::Headers h = lab.request(Opcode::kUcSendOnly, 0);
  EXPECT_EQ(lab.host.engine.classify(h, 5, {lab.source, kMaxMessageBytes, false}, 0).drop, DropReason::kWrongOpcode);
  lab.source = host_gid(5);
  EXPECT_EQ(receive(Opcode::kUcSendOnly, 0, 5), DropReason::kWrongSource);
  Lab reliable;
  EXPECT_EQ(reliable.receive(reliable.request(Opcode::kUcSendOnly, 0), 5).drop, DropReason::kWrongOpcode);
}

TEST_F(UcLab, ASendIsDoneWhenItsLastPacketHasLeft) {
  const std::array sges = {target.sge(0, 3 * kMtu)};
  ASSERT_EQ(lab.end.send(send_wr(1, sges)), 0);
  Engine& engine = lab.host.engine;
  std::array<TxDesc, 1> one;
  constexpr std::array kExpected = {Opcode::kUcSendFirst, Opcode::kUcSendMiddle, Opcode::kUcSendLast};
  for (std::uint32_t n = 0; n < 3; ++n) {
    ASSERT_EQ(engine.next_tx(0, 1 << 20, one), 1U);
    EXPECT_EQ(one[0].headers.opcode, kExpected[n]);
    EXPECT_EQ(one[0].headers.psn, lab.psn(n));
    EXPECT_FALSE(one[0].headers.ack_req);
    EXPECT_TRUE(lab.end.poll().empty());
  }
  EXPECT_TRUE(engine.has_tx());
  EXPECT_EQ(engine.next_tx(0, 1 << 20, one), 0U);
  EXPECT_EQ(lab.end.poll().size(), 1U);
  EXPECT_FALSE(engine.has_tx());
}

TEST_F(UcLab, MemoryThatIsGoneInMidMessage) {
  const std::array sges = {target.sge(0, 3 * kMtu)};
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(lab.end.send(send_wr(i, sges)), 0);
  const auto sent = lab.pull(5);
  lab.host.engine.tx_failed(sent[4].desc, 0);  // the second packet of the second message
  EXPECT_TRUE(lab.pull().empty());
  const auto done = lab.end.poll();
  ASSERT_EQ(done.size(), 3U);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kLocalProtectionError);
  EXPECT_EQ(done[2].status, WcStatus::kFlushError);
  EXPECT_EQ(lab.end.qp->state(), QpState::kSqe);
}

TEST_F(UcLab, MemoryThatIsGoneInTheFirstPacket) {
  const std::array sges = {target.sge(0, 3 * kMtu)};
  ASSERT_EQ(lab.end.send(send_wr(1, sges)), 0);
  const auto sent = lab.pull(1);
  lab.host.engine.tx_failed(sent[0].desc, 0);
  EXPECT_TRUE(lab.host.engine.has_tx());
  EXPECT_TRUE(lab.pull().empty());
  EXPECT_EQ(lab.end.poll().at(0).status, WcStatus::kLocalProtectionError);
  EXPECT_FALSE(lab.host.engine.has_tx());
}

TEST_F(UcLab, PacketsThatTheLinkRefusesForGood) {
  const std::array sges = {target.sge(0, 10)};
  ASSERT_EQ(lab.end.send(send_wr(1, sges)), 0);
  ASSERT_EQ(lab.end.send(send_wr(2, sges)), 0);
  lab.pull(1);
  lab.host.engine.tx_refused(Lab::kQpn, 0);
  lab.pull();
  const auto done = lab.end.poll();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].status, WcStatus::kLocalQpOperationError);
  EXPECT_EQ(done[1].status, WcStatus::kFlushError);
  EXPECT_EQ(lab.end.qp->state(), QpState::kSqe);
}

TEST_F(UcLab, WindowsAreBoundAndInvalidatedInOrder) {
  MemoryTable& memory = lab.host.engine.memory();
  Buffer region = lab.host.buffer(4096, kEveryAccess | kAccessWindowBind);
  const std::uint32_t window = memory.add_window(lab.host.pd, WindowType::k2);
  const WindowBinding binding{region.address(), 1024, region.key, kAccessRemoteWrite};
  SendWr bind;
  bind.wr_id = 2;
  bind.opcode = WrOpcode::kBindWindow;
  bind.rkey = window;
  bind.binding = &binding;
  const std::array sges = {target.sge(0, 10)};
  ASSERT_EQ(lab.end.send(send_wr(1, sges)), 0);
  ASSERT_EQ(lab.end.send(bind), 0);
  ASSERT_EQ(lab.end.send(send_wr(3, sges)), 0);
  EXPECT_EQ(lab.pull().size(), 2U);
  const auto done = lab.end.poll();
  ASSERT_EQ(done.size(), 3U);
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(done[i].wr_id, i + 1);
  EXPECT_EQ(done[1].opcode, WcOpcode::kBindWindow);

  wire::Headers h = lab.write(Opcode::kUcWriteOnly, 0, region, 10);
  h.rkey = window;
  EXPECT_EQ(lab.receive(h, 10).piece_count, 1U);
  SendWr invalidate;
  invalidate.wr_id = 4;
  invalidate.opcode = WrOpcode::kLocalInvalidate;
  invalidate.rkey = window;
  ASSERT_EQ(lab.end.send(invalidate), 0);
  EXPECT_TRUE(lab.pull().empty());
  EXPECT_EQ(lab.end.poll().at(0).status, WcStatus::kSuccess);
  h.psn = lab.psn(1);
  EXPECT_EQ(lab.receive(h, 10).piece_count, 0U);
  // A second time it cannot be invalidated.
  ASSERT_EQ(lab.end.send(invalidate), 0);
  EXPECT_TRUE(lab.pull().empty());
  EXPECT_EQ(lab.end.poll().at(0).status, WcStatus::kWindowBindError);
  EXPECT_EQ(lab.end.qp->state(), QpState::kSqe);
}

TEST_F(UcLab, ErrorInMidMessageFlushesIt) {
  const std::array sges = {target.sge(0, 3 * kMtu)};
  ASSERT_EQ(post(9), 0);
  ASSERT_EQ(lab.end.send(send_wr(1, sges)), 0);
  ASSERT_EQ(lab.end.send(send_wr(2, sges)), 0);
  lab.pull(4);
  QpAttr attr;
  attr.state = QpState::kErr;
  ASSERT_EQ(lab.host.engine.modify_qp(*lab.end.qp, attr, kAttrState, 0), 0);
  const auto done = lab.end.poll();
  ASSERT_EQ(done.size(), 3U);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kFlushError);
  EXPECT_EQ(done[2].wr_id, 9U);
  EXPECT_TRUE(lab.pull().empty());
  EXPECT_FALSE(lab.host.engine.has_tx());
}

TEST_F(UcLab, AfterResetNothingThatWasPostedBeforeCompletes) {
  const std::array sges = {target.sge(0, 3 * kMtu)};
  ASSERT_EQ(lab.end.send(send_wr(1, sges)), 0);
  ASSERT_EQ(lab.end.send(send_wr(2, sges)), 0);
  lab.pull(1);
  QpAttr attr;
  ASSERT_EQ(lab.host.engine.modify_qp(*lab.end.qp, attr, kAttrState, 0), 0);
  attr.state = QpState::kErr;  // before it is in RTS again
  ASSERT_EQ(lab.host.engine.modify_qp(*lab.end.qp, attr, kAttrState, 0), 0);
  EXPECT_TRUE(lab.end.poll().empty());
  EXPECT_FALSE(lab.host.engine.has_tx());
}

TEST(UcSharedReceive, AMessageThatWasCutOffLeavesItsReceiveToTheNext) {
  UdWorld lanes;
  SharedReceiveQueue& srq = lanes.shared(1);
  const std::pair<End, End> ends = {lanes.create(0, QpType::kUc), lanes.create(1, QpType::kUc, &srq)};
  World::bring_up(ends.first, ends.second, uc());
  World::bring_up(ends.second, ends.first, uc());
  Host& host = *ends.second.host;
  Buffer target = host.buffer(4096);
  for (std::uint64_t i = 0; i < 2; ++i) {
    const std::array sges = {target.sge(i * 1024, 1024)};
    ASSERT_EQ(srq.post({i, sges}), 0);
  }
  const auto receive = [&](Opcode opcode, std::uint32_t psn, std::uint32_t bytes) {
    wire::Headers h;
    h.opcode = opcode;
    h.dest_qpn = ends.second.qp->qpn();
    h.psn = psn;
    const RxVerdict verdict = host.engine.classify(h, bytes, {ends.first.host->gid, 4096, false}, 0);
    host.engine.commit(verdict, h, bytes, 0);
  };
  receive(Opcode::kUcSendFirst, 0, kMtu);
  receive(Opcode::kUcSendOnly, 5, 7);
  receive(Opcode::kUcSendOnly, 6, 8);
  const auto done = ends.second.poll();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].wr_id, 0U);
  EXPECT_EQ(done[0].byte_len, 7U);
  EXPECT_EQ(done[1].wr_id, 1U);
}

}  // namespace
}  // namespace tensorwire::transport::test
