// Memory windows at the responder, packet by packet: SEND with invalidate as it is received, and access through a
// window.
#include <gtest/gtest.h>

#include "window_lab.hpp"

namespace tensorwire::transport::test {
namespace {

using wire::NakCode;
using wire::Opcode;

// ---- received

TEST_F(WindowLab, InvalidatesOnceAndSaysSo) {
  const std::uint32_t key = bound(binding());
  const std::uint32_t other = bound(binding());
  ASSERT_EQ(lab.end.receive(7), 0);
  ASSERT_EQ(lab.end.receive(8), 0);
  const wire::Headers h = send_invalidate(Opcode::kRcSendOnlyInvalidate, 0, key);
  EXPECT_EQ(lab.classify(h, 0).action, RxAction::kControl);
  EXPECT_TRUE(is_bound(key)) << "judging changes nothing";
  lab.receive(h);
  EXPECT_FALSE(is_bound(key));
  EXPECT_TRUE(is_bound(other));
  const auto done = lab.end.poll();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].wr_id, 7U);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[0].opcode, WcOpcode::kRecv);
  EXPECT_EQ(done[0].flags, kWcWithInvalidate);
  EXPECT_EQ(done[0].invalidated_key, key);
  lab.expect_ack(0);

  ASSERT_TRUE(table().bind(key, binding(), lab.host.pd, Lab::kQpn));
  lab.receive(h);
  EXPECT_TRUE(is_bound(key)) << "a duplicate invalidates nothing";
  EXPECT_TRUE(lab.end.poll().empty());
  lab.expect_ack(0);
}

TEST_F(WindowLab, InvalidatesAtTheLastPacket) {
  const std::uint32_t key = bound(binding());
  const Buffer target = lab.host.buffer(4096);
  ASSERT_EQ(lab.end.receive(7, {target.sge(0, 4096)}), 0);
  lab.receive(lab.request(Opcode::kRcSendFirst, 0), 1024);
  EXPECT_TRUE(is_bound(key));
  EXPECT_EQ(lab.receive(send_invalidate(Opcode::kRcSendLastInvalidate, 1, key), 100).action, RxAction::kPlace);
  EXPECT_FALSE(is_bound(key));
  const auto done = lab.end.poll();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].byte_len, 1124U);
  EXPECT_EQ(done[0].invalidated_key, key);
}

TEST_F(WindowLab, WhatCannotBeInvalidatedIsARemoteAccessError) {
  const auto refused = [](const char* what, auto&& key_of) {
    SCOPED_TRACE(what);
    Lab one;
    Buffer bytes = one.host.buffer(4096, kBindable);
    const std::uint32_t key = key_of(one, bytes);
    ASSERT_EQ(one.end.receive(7, {bytes.sge(0, 64)}), 0);
    ASSERT_EQ(one.end.receive(8), 0);
    wire::Headers h = one.request(Opcode::kRcSendOnlyInvalidate, 0);
    h.invalidate_rkey = key;
    EXPECT_EQ(one.receive(h, 8).action, RxAction::kControl) << "nothing is placed";
    one.expect_nak(NakCode::kRemoteAccess, 0);
    EXPECT_EQ(one.end.qp->state(), QpState::kErr);
    EXPECT_EQ(one.counters().resp_remote_access_errors, 1U);
    const auto done = one.end.poll();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[0].wr_id, 7U);
    EXPECT_EQ(done[0].status, WcStatus::kRemoteInvalidRequestError);
    EXPECT_EQ(done[0].flags, 0U);
    EXPECT_EQ(done[1].status, WcStatus::kFlushError);
  };
  const auto bind = [](Lab& one, const Buffer& bytes, std::uint32_t key, std::uint32_t qpn = Lab::kQpn) {
    EXPECT_TRUE(one.host.engine.memory().bind(key, {bytes.address(), 64, bytes.key, kAccessRemote}, one.host.pd, qpn));
    return key;
  };
  refused("a key of nobody", [](Lab&, const Buffer&) { return 0x1234'5678U; });
  refused("a region", [](Lab&, const Buffer& bytes) { return bytes.key; });
  refused("a window bound to nothing",
          [](Lab& one, const Buffer&) { return one.host.engine.memory().add_window(one.host.pd, WindowType::k2); });
  refused("type 1", [&](Lab& one, const Buffer& bytes) {
    return bind(one, bytes, one.host.engine.memory().add_window(one.host.pd, WindowType::k1));
  });
  refused("another queue pair's", [&](Lab& one, const Buffer& bytes) {
    return bind(one, bytes, one.host.engine.memory().add_window(one.host.pd, WindowType::k2), Lab::kQpn + 1);
  });
  refused("another tag", [&](Lab& one, const Buffer& bytes) {
    return bind(one, bytes, one.host.engine.memory().add_window(one.host.pd, WindowType::k2)) ^ 1U;
  });
}

TEST_F(WindowLab, AJudgementThatWasOvertakenIsMadeAgain) {
  const std::uint32_t key = bound(binding());
  ASSERT_EQ(lab.end.receive(7), 0);
  const wire::Headers h = send_invalidate(Opcode::kRcSendOnlyInvalidate, 0, key);
  const RxVerdict verdict = lab.classify(h, 0);
  ASSERT_TRUE(table().invalidate(key, lab.host.pd, Lab::kQpn));
  lab.host.engine.commit(verdict, h, 0, 0);
  lab.expect_nak(NakCode::kRemoteAccess, 0);
  expect_completion(7, WcOpcode::kRecv, WcStatus::kRemoteInvalidRequestError);
}

TEST_F(WindowLab, WithoutAReceiveNothingIsInvalidated) {
  const std::uint32_t key = bound(binding());
  lab.receive(send_invalidate(Opcode::kRcSendOnlyInvalidate, 0, key));
  EXPECT_TRUE(is_bound(key));
  EXPECT_EQ(lab.counters().out_of_buffer, 1U);
  EXPECT_EQ(lab.end.qp->state(), QpState::kRts);
}

// ---- access through a window

class WindowAccess : public WindowLab {
 protected:
  wire::Headers through(Opcode opcode, std::uint32_t n, std::uint32_t key, std::size_t offset,
                        std::uint32_t length) const {
    wire::Headers h = lab.write(opcode, n, region, length);
    h.rkey = key;
    h.va += offset;
    return h;
  }
  void expect_refused(const wire::Headers& h, std::uint32_t bytes) {
    lab.receive(h, bytes);
    lab.expect_nak(NakCode::kRemoteAccess, 0);
    EXPECT_EQ(lab.end.qp->state(), QpState::kErr);
  }
};

TEST_F(WindowAccess, WriteReadAndAtomicInsideOfIt) {
  const std::uint32_t key = bound(binding(256, 512));
  const RxVerdict verdict = lab.receive(through(Opcode::kRcWriteOnly, 0, key, 256, 512), 512);
  ASSERT_EQ(verdict.action, RxAction::kPlace);
  EXPECT_EQ(verdict.pieces[0].address, region.address(256));
  lab.expect_ack(0);
  lab.receive(through(Opcode::kRcReadRequest, 1, key, 256, 512));
  const auto answer = lab.pull();
  ASSERT_EQ(answer.size(), 1U);
  EXPECT_EQ(answer[0].desc.pieces[0].address, region.address(256));
  region.set_word(256, 5);
  wire::Headers add = lab.fetch_add(2, region, 3);
  add.rkey = key;
  add.va += 256;
  lab.receive(add);
  EXPECT_EQ(region.word(256), 8U);
}

TEST_F(WindowAccess, ABytePastItsEndIsRefused) {
  expect_refused(through(Opcode::kRcWriteOnly, 0, bound(binding(256, 512)), 256, 513), 513);
}
TEST_F(WindowAccess, AByteBeforeItIsRefused) {
  expect_refused(through(Opcode::kRcReadRequest, 0, bound(binding(256, 512)), 255, 8), 0);
}
TEST_F(WindowAccess, ARightThatItDoesNotGiveIsRefused) {
  expect_refused(through(Opcode::kRcWriteOnly, 0, bound(binding(0, 512, kAccessRemoteRead)), 0, 8), 8);
}
TEST_F(WindowAccess, AnotherTagIsRefused) {
  expect_refused(through(Opcode::kRcWriteOnly, 0, bound(binding()) ^ 1U, 0, 8), 8);
}
TEST_F(WindowAccess, AnotherQueuePairIsRefused) {
  const std::uint32_t key = window();
  ASSERT_TRUE(table().bind(key, binding(), lab.host.pd, Lab::kQpn + 1));
  expect_refused(through(Opcode::kRcWriteOnly, 0, key, 0, 8), 8);
}
TEST_F(WindowAccess, TypeOneServesAnyQueuePairOfTheDomain) {
  const std::uint32_t key = window(WindowType::k1);
  ASSERT_TRUE(table().bind(key, binding(), lab.host.pd, Lab::kQpn + 1));
  EXPECT_EQ(lab.receive(through(Opcode::kRcWriteOnly, 0, key, 0, 8), 8).action, RxAction::kPlace);
}
TEST_F(WindowAccess, AnAtomicWithoutTheRightIsRefused) {
  wire::Headers add = lab.fetch_add(0, region, 3);
  add.rkey = bound(binding(0, 512, kAccessRemoteRead | kAccessRemoteWrite));
  expect_refused(add, 0);
}

TEST_F(WindowAccess, InvalidatedInMidMessage) {
  const std::uint32_t key = bound(binding(0, 4096));
  EXPECT_EQ(lab.receive(through(Opcode::kRcWriteFirst, 0, key, 0, 3000), 1024).action, RxAction::kPlace);
  lab.pull();
  ASSERT_EQ(invalidate(1, key), 0);
  lab.pull();
  expect_completion(1, WcOpcode::kLocalInvalidate);
  const RxVerdict verdict = lab.receive(lab.request(Opcode::kRcWriteMiddle, 1), 1024);
  EXPECT_EQ(verdict.piece_count, 0U);
  lab.expect_nak(NakCode::kRemoteAccess, 1);
}

TEST_F(WindowAccess, InvalidatedWhileAReadIsAnswered) {
  const std::uint32_t key = bound(binding(0, 4096));
  lab.receive(through(Opcode::kRcReadRequest, 0, key, 0, 3000));
  EXPECT_EQ(lab.pull(1).size(), 1U);
  ASSERT_TRUE(table().invalidate(key, lab.host.pd, Lab::kQpn));
  const auto rest = lab.pull();
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest[0].headers.opcode, Opcode::kRcAck);
  EXPECT_EQ(rest[0].headers.syndrome, wire::kSyndromeNak | static_cast<std::uint8_t>(NakCode::kRemoteAccess));
  EXPECT_EQ(rest[0].headers.psn, lab.psn(1));
}

TEST_F(WindowAccess, ClosedByThePeerWhileTheSameReadIsOnItsWayAgain) {
  const std::uint32_t key = bound(binding(0, 4096));
  ASSERT_EQ(lab.end.receive(7), 0);
  const wire::Headers read = through(Opcode::kRcReadRequest, 0, key, 0, 3000);
  lab.receive(read);
  EXPECT_EQ(lab.pull().size(), 3U);
  lab.receive(read);  // the peer timed out, then had its answer
  lab.receive(send_invalidate(Opcode::kRcSendOnlyInvalidate, 3, key));
  lab.expect_ack(3);
  lab.receive(read);
  EXPECT_TRUE(lab.pull().empty());
  EXPECT_EQ(lab.end.qp->state(), QpState::kRts);
}

}  // namespace
}  // namespace tensorwire::transport::test
