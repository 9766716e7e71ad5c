// Memory windows in the send queue, packet by packet: bind and local invalidate take their turn without a packet; SEND
// with invalidate as it is sent.
#include <gtest/gtest.h>

#include <cerrno>

#include "window_lab.hpp"

namespace tensorwire::transport::test {
namespace {

using wire::NakCode;
using wire::Opcode;

// ---- the send queue

TEST_F(WindowLab, BindingNeedsNoPacketAndNoPeer) {
  const std::uint32_t key = window();
  ASSERT_EQ(bind(1, key, binding()), 0);
  EXPECT_FALSE(is_bound(key)) << "its turn comes when the link asks";
  EXPECT_TRUE(lab.pull().empty());
  EXPECT_TRUE(is_bound(key));
  expect_completion(1, WcOpcode::kBindWindow);
  ASSERT_EQ(invalidate(2, key), 0);
  EXPECT_TRUE(lab.pull().empty());
  EXPECT_FALSE(is_bound(key));
  expect_completion(2, WcOpcode::kLocalInvalidate);
  EXPECT_FALSE(lab.host.engine.has_tx());
  EXPECT_EQ(lab.host.engine.next_deadline(), kNever);
}

TEST_F(WindowLab, LocalRequestsTakeTheirTurnAndCompleteInOrder) {
  const std::uint32_t key = window();
  ASSERT_EQ(write(1), 0);
  ASSERT_EQ(bind(2, key, binding()), 0);
  ASSERT_EQ(write(3), 0);
  ASSERT_EQ(invalidate(4, key), 0);
  ASSERT_EQ(write(5), 0);
  EXPECT_EQ(lab.pull(1).size(), 1U);
  EXPECT_FALSE(is_bound(key)) << "the write before it has left, its own turn is the next";
  const auto rest = lab.pull();
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_EQ(rest[0].headers.psn, lab.psn(1)) << "a binding takes no PSN";
  EXPECT_EQ(rest[1].headers.psn, lab.psn(2));
  EXPECT_FALSE(is_bound(key)) << "bound, and invalidated again";
  expect_no_completion();
  lab.ack(0);
  expect_completion(1, WcOpcode::kWrite);
  expect_completion(2, WcOpcode::kBindWindow);
  expect_no_completion();
  lab.ack(2);
  expect_completion(3, WcOpcode::kWrite);
  expect_completion(4, WcOpcode::kLocalInvalidate);
  expect_completion(5, WcOpcode::kWrite);
}

TEST_F(WindowLab, UnsignaledOnesCompleteSilently) {
  SendWr wr;
  wr.opcode = WrOpcode::kBindWindow;
  wr.rkey = window();
  const WindowBinding what = binding();
  wr.binding = &what;
  wr.signaled = false;
  for (int i = 0; i < 200; ++i) {  // more than the queue is long
    ASSERT_EQ(lab.end.send(wr), 0);
    EXPECT_TRUE(lab.pull().empty());
    ASSERT_TRUE(table().invalidate(wr.rkey, lab.host.pd, Lab::kQpn));
  }
  expect_no_completion();
}

TEST_F(WindowLab, SentAgainIsNotExecutedAgain) {
  const std::uint32_t key = window();
  ASSERT_EQ(write(1), 0);
  ASSERT_EQ(bind(2, key, binding()), 0);
  ASSERT_EQ(write(3), 0);
  EXPECT_EQ(lab.pull().size(), 2U);
  ASSERT_TRUE(table().invalidate(key, lab.host.pd, Lab::kQpn)) << "as a SEND with invalidate would";
  lab.nak(0);
  const auto again = lab.pull();
  ASSERT_EQ(again.size(), 2U);
  EXPECT_TRUE(again[0].retransmission && again[1].retransmission);
  EXPECT_EQ(again[1].headers.psn, lab.psn(1));
  EXPECT_FALSE(is_bound(key));
  lab.ack(1);
  expect_completion(1, WcOpcode::kWrite);
  expect_completion(2, WcOpcode::kBindWindow);
  expect_completion(3, WcOpcode::kWrite);
}

TEST_F(WindowLab, LateAcknowledgementPassesOverAnExecutedOne) {
  const std::uint32_t key = window();
  ASSERT_EQ(write(1), 0);
  ASSERT_EQ(bind(2, key, binding()), 0);
  ASSERT_EQ(write(3), 0);
  EXPECT_EQ(lab.pull().size(), 2U);
  lab.nak(0);  // everything is to be sent again
  lab.ack(1);  // and has arrived after all
  EXPECT_TRUE(lab.pull().empty());
  expect_completion(1, WcOpcode::kWrite);
  expect_completion(2, WcOpcode::kBindWindow);
  expect_completion(3, WcOpcode::kWrite);
  EXPECT_TRUE(is_bound(key));
}

TEST_F(WindowLab, SentAgainUpToOneWhosePlaceIsTakenMeanwhile) {
  const std::uint32_t key = window();
  ASSERT_EQ(write(1), 0);
  ASSERT_EQ(bind(2, key, binding()), 0);
  ASSERT_EQ(write(3), 0);
  EXPECT_EQ(lab.pull().size(), 2U);
  lab.nak(0);
  EXPECT_EQ(lab.pull(1).size(), 1U) << "the binding would be next, and then the second write";
  lab.ack(0);
  expect_completion(1, WcOpcode::kWrite);
  expect_completion(2, WcOpcode::kBindWindow);
  const Sge shorter = region.sge(0, 32);
  std::size_t posted = 0;  // as many as there are places, that of the binding too
  while (lab.end.send(write_wr(4 + posted, {&shorter, 1}, 0x1000, 1), lab.now) == 0) ++posted;
  const auto rest = lab.pull();
  ASSERT_EQ(rest.size(), 1 + posted);
  EXPECT_TRUE(rest[0].retransmission);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    EXPECT_EQ(rest[i].headers.psn, lab.psn(static_cast<std::uint32_t>(1 + i)));
    EXPECT_EQ(rest[i].bytes, i == 0 ? 64U : 32U) << "the second write, then the new ones";
  }
}

TEST_F(WindowLab, FencedInvalidateWaitsForReads) {
  for (const bool fence : {false, true}) {
    SCOPED_TRACE(fence);
    const std::uint32_t key = bound(binding());
    const Sge sge = region.sge(0, 8);
    const std::uint32_t n = fence ? 1 : 0;
    ASSERT_EQ(lab.end.send(read_wr(1, {&sge, 1}, 0x1000, 1)), 0);
    ASSERT_EQ(invalidate(2, key, fence), 0);
    EXPECT_EQ(lab.pull().size(), 1U);
    EXPECT_EQ(is_bound(key), fence);
    lab.receive(Lab::response(Opcode::kRcReadResponseOnly, lab.psn(n)), 8);
    EXPECT_TRUE(lab.pull().empty());
    EXPECT_FALSE(is_bound(key));
    expect_completion(1, WcOpcode::kRead);
    expect_completion(2, WcOpcode::kLocalInvalidate);
  }
}

TEST_F(WindowLab, AFailureWaitsItsTurnAndEndsTheQueuePair) {
  ASSERT_EQ(write(1), 0);
  ASSERT_EQ(invalidate(2, region.key), 0) << "a region cannot be invalidated";
  ASSERT_EQ(write(3), 0);
  EXPECT_EQ(lab.pull().size(), 1U);
  EXPECT_EQ(lab.end.qp->state(), QpState::kRts);
  lab.nak(0);  // a rewind forgets it, and it fails again
  EXPECT_EQ(lab.pull().size(), 1U);
  lab.ack(0);
  EXPECT_EQ(lab.end.qp->state(), QpState::kErr);
  expect_completion(1, WcOpcode::kWrite);
  expect_completion(2, WcOpcode::kLocalInvalidate, WcStatus::kWindowBindError);
  expect_completion(3, WcOpcode::kWrite, WcStatus::kFlushError);
}

TEST_F(WindowLab, BindingOfNothingFailsAtOnceWhenItIsTheOldest) {
  ASSERT_EQ(bind(1, window(), binding(0, 0)), 0);
  EXPECT_TRUE(lab.pull().empty());
  expect_completion(1, WcOpcode::kBindWindow, WcStatus::kWindowBindError);
  EXPECT_EQ(lab.end.qp->state(), QpState::kErr);
  ASSERT_EQ(bind(2, window(), binding()), 0);
  expect_completion(2, WcOpcode::kBindWindow, WcStatus::kFlushError);
}

TEST_F(WindowLab, ExecutedOnesAreFlushedWithWhatStandsBeforeThem) {
  const std::uint32_t key = window();
  ASSERT_EQ(write(1), 0);
  ASSERT_EQ(bind(2, key, binding()), 0);
  EXPECT_EQ(lab.pull().size(), 1U);
  lab.nak(0, NakCode::kRemoteAccess);
  expect_completion(1, WcOpcode::kWrite, WcStatus::kRemoteAccessError);
  expect_completion(2, WcOpcode::kBindWindow, WcStatus::kFlushError);
  EXPECT_TRUE(is_bound(key)) << "a flush does not say that it was not executed";
}

TEST_F(WindowLab, WaitsWithItsQueuePair) {
  const std::uint32_t key = window();
  ASSERT_EQ(write(1), 0);
  EXPECT_EQ(lab.pull().size(), 1U);
  lab.rnr(0, 10);
  ASSERT_EQ(bind(2, key, binding()), 0);
  EXPECT_TRUE(lab.pull().empty());
  EXPECT_FALSE(is_bound(key));
  lab.timer_at(lab.host.engine.next_deadline());
  EXPECT_EQ(lab.pull().size(), 1U);
  EXPECT_TRUE(is_bound(key));
}

TEST_F(WindowLab, WhatCannotBePosted) {
  SendWr wr;
  wr.opcode = WrOpcode::kBindWindow;
  EXPECT_EQ(lab.end.qp->post_send(wr), EINVAL) << "without a binding";
  const WindowBinding what = binding();
  wr.binding = &what;
  const Sge sge = region.sge(0, 8);
  wr.sges = {&sge, 1};
  EXPECT_EQ(lab.end.qp->post_send(wr), EINVAL) << "with bytes";
  wr.opcode = static_cast<WrOpcode>(10);
  EXPECT_EQ(lab.end.qp->post_send(wr), EOPNOTSUPP);
}

TEST_F(WindowLab, DestroyingTheQueuePairUnbindsItsWindows) {
  const std::uint32_t key = bound(binding());
  EXPECT_FALSE(table().remove(region.key));
  lab.host.engine.destroy_qp(*lab.end.qp);
  EXPECT_FALSE(is_bound(key));
  EXPECT_TRUE(table().remove(region.key));
  EXPECT_EQ(lab.host.engine.destroy_pd(lab.host.pd), EBUSY) << "the window lives";
  EXPECT_TRUE(table().remove_window(key));
  EXPECT_EQ(lab.host.engine.destroy_pd(lab.host.pd), 0);
}

// ---- SEND with invalidate, sent

TEST_F(WindowLab, TheLastPacketNamesTheKey) {
  const Sge sge = region.sge(0, 3000);
  SendWr wr = send_wr(1, {&sge, 1});
  wr.opcode = WrOpcode::kSendInvalidate;
  wr.rkey = 0x1234'5678;
  wr.solicited = true;
  ASSERT_EQ(lab.end.send(wr), 0);
  const auto sent = lab.pull();
  ASSERT_EQ(sent.size(), 3U);
  EXPECT_EQ(sent[0].headers.opcode, Opcode::kRcSendFirst);
  EXPECT_EQ(sent[1].headers.opcode, Opcode::kRcSendMiddle);
  EXPECT_EQ(sent[2].headers.opcode, Opcode::kRcSendLastInvalidate);
  EXPECT_EQ(sent[2].headers.invalidate_rkey, 0x1234'5678U);
  EXPECT_TRUE(sent[2].headers.solicited);
  lab.ack(2);
  expect_completion(1, WcOpcode::kSend);

  wr.sges = {};
  ASSERT_EQ(lab.end.send(wr), 0);
  const auto only = lab.pull();
  ASSERT_EQ(only.size(), 1U);
  EXPECT_EQ(only[0].headers.opcode, Opcode::kRcSendOnlyInvalidate);
  EXPECT_EQ(only[0].headers.invalidate_rkey, 0x1234'5678U);
}

TEST_F(WindowLab, ItNeedsACreditAsEverySendDoes) {
  const Sge sge = region.sge(0, 8);
  ASSERT_EQ(write(1), 0);
  SendWr wr = send_wr(2, {&sge, 1});
  wr.opcode = WrOpcode::kSendInvalidate;
  EXPECT_EQ(lab.pull().size(), 1U);
  wire::Headers none = Lab::acknowledge(wire::kSyndromeAck, lab.psn(0));  // credit code 0: no receives
  none.msn = 1;
  lab.receive(none);
  ASSERT_EQ(write(3), 0);
  ASSERT_EQ(lab.end.send(wr), 0);
  EXPECT_EQ(lab.pull().size(), 1U) << "the write; the send waits until nothing else is outstanding";
}

}  // namespace
}  // namespace tensorwire::transport::test
