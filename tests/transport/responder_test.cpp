// The responder against a peer played packet by packet: who is heard, what is executed, what is answered.
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "lab.hpp"

namespace tensorwire::transport::test {
namespace {

using wire::NakCode;
using wire::Opcode;

class Responder : public testing::Test {
 protected:
  Lab lab;
  Buffer target = lab.host.buffer(1 << 16);

  void expect_failed(NakCode code, std::uint32_t n) {
    EXPECT_EQ(lab.end.qp->state(), QpState::kErr);
    lab.expect_nak(code, n);
  }
};

TEST_F(Responder, DropsStrangers) {
  wire::Headers h = lab.request(Opcode::kRcSendOnly, 0);
  const auto reason = [&](const wire::Headers& headers) { return lab.classify(headers, 0).drop; };
  wire::Headers other = h;
  other.dest_qpn = 0x43;
  EXPECT_EQ(reason(other), DropReason::kUnknownQp);
  lab.source = host_gid(5);
  EXPECT_EQ(reason(h), DropReason::kWrongSource);
  lab.source = lab.peer_gid;
  other = h;
  other.pkey = 0x8001;
  EXPECT_EQ(reason(other), DropReason::kWrongPkey);
  other.pkey = 0x7fff;  // a limited member of our partition
  EXPECT_EQ(lab.classify(other, 0).action, RxAction::kControl);
  for (const Opcode opcode : {Opcode::kUdSendOnly, static_cast<Opcode>(0x26), static_cast<Opcode>(0xff)}) {
    other = h;
    other.opcode = opcode;
    EXPECT_EQ(reason(other), DropReason::kWrongOpcode);
  }
  other = h;
  other.opcode = Opcode::kRcReadResponseOnly;
  EXPECT_EQ(reason(other), DropReason::kStale);
  EXPECT_EQ(lab.classify(h, 4097).drop, DropReason::kBadLength);
  QueuePair& idle = lab.create(0x50);
  other = h;
  other.dest_qpn = idle.qpn();
  EXPECT_EQ(reason(other), DropReason::kWrongState);
  EXPECT_EQ(lab.counters().rx_dropped, 9U);
  EXPECT_FALSE(lab.host.engine.has_tx());
  EXPECT_EQ(lab.end.qp->state(), QpState::kRts);
}

TEST_F(Responder, ClassifyChangesNothing) {
  ASSERT_EQ(lab.end.receive(1, {target.sge(0, 100)}), 0);
  const wire::Headers h = lab.request(Opcode::kRcSendOnly, 0);
  for (int i = 0; i < 3; ++i) {
    const RxVerdict verdict = lab.classify(h, 100);
    EXPECT_EQ(verdict.action, RxAction::kPlace);
    EXPECT_TRUE(verdict.verify_first);
    ASSERT_EQ(verdict.piece_count, 1U);
    EXPECT_EQ(verdict.pieces[0].address, target.address());
    EXPECT_EQ(verdict.pieces[0].length, 100U);
  }
  EXPECT_TRUE(lab.end.poll().empty());
  EXPECT_FALSE(lab.host.engine.has_tx());
  lab.receive(h, 100);
  EXPECT_EQ(lab.end.poll().size(), 1U);
}

TEST_F(Responder, AJudgementThatWasOvertakenIsNotExecuted) {
  ASSERT_EQ(lab.end.receive(1, {target.sge(0, 100)}), 0);
  const wire::Headers h = lab.request(Opcode::kRcSendOnly, 0);
  const RxVerdict verdict = lab.classify(h, 10);
  lab.host.engine.commit(verdict, h, 10, 0);
  lab.host.engine.commit(verdict, h, 10, 0);
  EXPECT_EQ(lab.end.poll().size(), 1U);
}

TEST_F(Responder, CoalescesAcknowledgements) {
  wire::Headers h = lab.write(Opcode::kRcWriteFirst, 0, target, 40 * 1024);
  h.ack_req = false;
  lab.receive(h, 1024);
  EXPECT_FALSE(lab.host.engine.has_tx());
  for (std::uint32_t n = 1; n < 15; ++n) {
    h = lab.request(Opcode::kRcWriteMiddle, n);
    h.ack_req = false;
    EXPECT_FALSE(lab.classify(h, 1024).verify_first);
    lab.receive(h, 1024);
  }
  EXPECT_FALSE(lab.host.engine.has_tx());
  h.psn = lab.psn(15);
  lab.receive(h, 1024);
  lab.expect_ack(15);
  h.psn = lab.psn(16);
  h.ack_req = true;
  lab.receive(h, 1024);
  h.psn = lab.psn(17);
  lab.receive(h, 1024);
  lab.expect_ack(17);  // one for both
}

TEST_F(Responder, MessageSequenceNumberCountsMessages) {
  lab.receive(lab.write(Opcode::kRcWriteFirst, 0, target, 1025), 1024);
  EXPECT_EQ(lab.answer()->msn, 0U);
  lab.receive(lab.request(Opcode::kRcWriteLast, 1), 1);
  EXPECT_EQ(lab.answer()->msn, 1U);
  lab.receive(lab.write(Opcode::kRcWriteOnly, 2, target, 0), 0);
  EXPECT_EQ(lab.answer()->msn, 2U);
}

TEST_F(Responder, OneNakPerGap) {
  EXPECT_EQ(lab.receive(lab.request(Opcode::kRcSendMiddle, 3), 1024).action, RxAction::kControl);
  lab.expect_nak(NakCode::kPsnSequence, 0);
  EXPECT_EQ(lab.receive(lab.request(Opcode::kRcSendMiddle, 4), 1024).drop, DropReason::kOutOfSequence);
  EXPECT_FALSE(lab.host.engine.has_tx());
  lab.receive(lab.write(Opcode::kRcWriteOnly, 0, target, 8), 8);
  lab.expect_ack(0);
  lab.receive(lab.request(Opcode::kRcSendOnly, 2), 0);
  lab.expect_nak(NakCode::kPsnSequence, 1);
  EXPECT_EQ(lab.counters().out_of_sequence, 3U);
}

TEST_F(Responder, AnUnsentNakIsOvertakenByWhatItAskedFor) {
  lab.receive(lab.request(Opcode::kRcSendOnly, 1), 0);
  lab.receive(lab.write(Opcode::kRcWriteOnly, 0, target, 8), 8);
  lab.expect_ack(0);
}

TEST_F(Responder, DuplicatesAreAcknowledgedAgainAndNotExecuted) {
  ASSERT_EQ(lab.end.receive(1), 0);
  ASSERT_EQ(lab.end.receive(2), 0);
  lab.receive(lab.request(Opcode::kRcSendOnly, 0), 0);
  lab.expect_ack(0);
  EXPECT_EQ(lab.receive(lab.request(Opcode::kRcSendOnly, 0), 0).action, RxAction::kControl);
  lab.expect_ack(0);
  lab.receive(lab.request(Opcode::kRcSendOnly, 0xc00000), 0);  // half the circle back
  lab.expect_ack(0);
  EXPECT_EQ(lab.end.poll().size(), 1U);
  EXPECT_EQ(lab.counters().duplicate_request, 2U);
}

TEST_F(Responder, OpcodeSequenceAndLengthsAreInvalidRequests) {
  struct Case {
    std::vector<std::pair<wire::Headers, std::uint32_t>> packets;
    const char* what;
  };
  const std::vector<Case> cases = {
      {{{lab.request(Opcode::kRcSendMiddle, 0), 1024}}, "middle without first"},
      {{{lab.request(Opcode::kRcSendLast, 0), 10}}, "last without first"},
      {{{lab.request(Opcode::kRcSendFirst, 0), 1023}}, "short first"},
      {{{lab.request(Opcode::kRcSendFirst, 0), 1028}}, "long first"},
      {{{lab.request(Opcode::kRcSendOnly, 0), 1028}}, "long only"},
      {{{lab.request(Opcode::kRcSendFirst, 0), 1024}, {lab.request(Opcode::kRcSendMiddle, 1), 1020}}, "short middle"},
      {{{lab.request(Opcode::kRcSendFirst, 0), 1024}, {lab.request(Opcode::kRcSendLast, 1), 0}}, "empty last"},
      {{{lab.request(Opcode::kRcSendFirst, 0), 1024}, {lab.request(Opcode::kRcSendOnly, 1), 0}}, "only inside"},
      {{{lab.request(Opcode::kRcSendFirst, 0), 1024}, {lab.request(Opcode::kRcWriteLast, 1), 8}}, "another kind"},
      {{{lab.write(Opcode::kRcWriteFirst, 0, target, 1024), 1024}}, "first that is all"},
      {{{lab.write(Opcode::kRcWriteOnly, 0, target, 100), 104}}, "more than the RETH says"},
      {{{lab.write(Opcode::kRcWriteOnly, 0, target, 100), 96}}, "less than the RETH says"},
      {{{lab.write(Opcode::kRcWriteFirst, 0, target, 2000), 1024}, {lab.request(Opcode::kRcWriteLast, 1), 1000}},
       "last too long"},
      {{{lab.write(Opcode::kRcWriteFirst, 0, target, 2000), 1024}, {lab.request(Opcode::kRcWriteMiddle, 1), 1024}},
       "middle at the end"},
      {{{lab.write(Opcode::kRcWriteFirst, 0, target, 0x80000001U), 1024}}, "longer than a message may be"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Lab fresh;
    Buffer bytes = fresh.host.buffer(1 << 16);
    ASSERT_EQ(fresh.end.receive(1, {bytes.sge(0, 1 << 16)}), 0);
    for (std::size_t i = 0; i < c.packets.size(); ++i) {
      wire::Headers h = c.packets[i].first;
      if (h.rkey == target.key) {
        h.rkey = bytes.key;
        h.va = bytes.address();
      }
      if (i + 1 < c.packets.size()) h.ack_req = false;
      fresh.receive(h, c.packets[i].second);
    }
    EXPECT_EQ(fresh.end.qp->state(), QpState::kErr);
    fresh.expect_nak(NakCode::kInvalidRequest, static_cast<std::uint32_t>(c.packets.size()) - 1);
    EXPECT_TRUE(fresh.host.events.has(AsyncEvent::kQpRequestError));
    const auto flushed = fresh.end.poll();
    ASSERT_EQ(flushed.size(), 1U);
    EXPECT_EQ(flushed[0].status, WcStatus::kFlushError);
  }
}

TEST_F(Responder, RemoteAccessErrors) {
  const auto refused = [](const std::function<void(wire::Headers&, Host&)>& spoil, const Connection& c = {}) {
    Lab fresh(c);
    Buffer bytes = fresh.host.buffer(4096);
    wire::Headers h = fresh.write(Opcode::kRcWriteOnly, 0, bytes, 100);
    spoil(h, fresh.host);
    const RxVerdict verdict = fresh.receive(h, 100);
    EXPECT_EQ(verdict.action, RxAction::kControl);
    fresh.expect_nak(NakCode::kRemoteAccess, 0);
    EXPECT_TRUE(fresh.host.events.has(AsyncEvent::kQpAccessError));
    EXPECT_EQ(fresh.end.qp->state(), QpState::kErr);
    EXPECT_EQ(fresh.counters().resp_remote_access_errors, 1U);
  };
  refused([](wire::Headers& h, Host&) { h.rkey ^= 1; });
  refused([](wire::Headers& h, Host&) { h.va -= 1; });
  refused([](wire::Headers& h, Host&) { h.va += 3997; });
  refused([](wire::Headers& h, Host&) { h.va = ~std::uint64_t{0} - 10; });
  refused([](wire::Headers& h, Host& host) {
    Buffer readonly = host.buffer(4096, kAccessLocalWrite | kAccessRemoteRead);
    h.rkey = readonly.key;
    h.va = readonly.address();
  });
  refused([](wire::Headers& h, Host& host) {
    h.rkey = host.engine.memory().add({h.va, 4096, h.va, kAccessRemoteWrite, 0, host.engine.create_pd(), nullptr}).key;
  });
  Connection closed;
  closed.access = kAccessRemoteRead;
  refused([](wire::Headers&, Host&) {}, closed);
}

TEST_F(Responder, AZeroLengthWriteNeedsNoKey) {
  wire::Headers h = lab.request(Opcode::kRcWriteOnly, 0);
  h.rkey = 0x1234;
  EXPECT_EQ(lab.receive(h).action, RxAction::kControl);
  lab.expect_ack(0);
}

TEST_F(Responder, RangeIsCheckedAtTheFirstPacket) {
  wire::Headers h = lab.write(Opcode::kRcWriteFirst, 0, target, (1 << 16) + 1);
  lab.receive(h, 1024);
  expect_failed(NakCode::kRemoteAccess, 0);
}

TEST_F(Responder, MiddlePacketsTakeTheirAddressFromTheFirst) {
  lab.receive(lab.write(Opcode::kRcWriteFirst, 0, target, 3000), 1024);
  wire::Headers h = lab.request(Opcode::kRcWriteMiddle, 1);
  h.va = 1;
  h.rkey = 2;
  h.dma_length = 3;
  RxVerdict verdict = lab.receive(h, 1024);
  ASSERT_EQ(verdict.piece_count, 1U);
  EXPECT_FALSE(verdict.verify_first);
  EXPECT_EQ(verdict.pieces[0].address, target.address(1024));
  verdict = lab.receive(lab.request(Opcode::kRcWriteLast, 2), 952);
  EXPECT_EQ(verdict.pieces[0].address, target.address(2048));
  EXPECT_EQ(verdict.pieces[0].length, 952U);
  lab.expect_ack(2);
}

TEST_F(Responder, ARegionDeregisteredInMidMessageIsARemoteAccessError) {
  lab.receive(lab.write(Opcode::kRcWriteFirst, 0, target, 3000), 1024);
  lab.pull();
  ASSERT_TRUE(lab.host.engine.memory().remove(target.key));
  lab.receive(lab.request(Opcode::kRcWriteMiddle, 1), 1024);
  expect_failed(NakCode::kRemoteAccess, 1);
}

TEST_F(Responder, NotReadyIsSaidBeforeABytePlaced) {
  // A SEND is refused at its first packet, a WRITE WITH IMMEDIATE at the packet with the immediate.
  EXPECT_EQ(lab.receive(lab.request(Opcode::kRcSendFirst, 0), 1024).action, RxAction::kControl);
  lab.expect_answer(wire::kSyndromeRnrNak | 4, 0);
  EXPECT_EQ(lab.receive(lab.request(Opcode::kRcSendMiddle, 1), 1024).drop, DropReason::kOutOfSequence);

  EXPECT_EQ(lab.receive(lab.write(Opcode::kRcWriteFirst, 0, target, 2000), 1024).action, RxAction::kPlace);
  lab.expect_ack(0);
  EXPECT_EQ(lab.receive(lab.request(Opcode::kRcWriteLastImm, 1), 976).action, RxAction::kControl);
  lab.expect_answer(wire::kSyndromeRnrNak | 4, 1);
  EXPECT_EQ(lab.counters().out_of_buffer, 2U);

  ASSERT_EQ(lab.end.receive(8), 0);
  EXPECT_EQ(lab.receive(lab.request(Opcode::kRcWriteLastImm, 1), 976).action, RxAction::kPlace);
  lab.expect_ack(1);
  const auto done = lab.end.poll();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].byte_len, 2000U);
}

TEST_F(Responder, ASendLongerThanItsReceiveIsALengthError) {
  ASSERT_EQ(lab.end.receive(1, {target.sge(0, 1500)}), 0);
  ASSERT_EQ(lab.end.receive(2), 0);
  wire::Headers h = lab.request(Opcode::kRcSendFirst, 0);
  h.ack_req = false;
  lab.receive(h, 1024);
  lab.receive(lab.request(Opcode::kRcSendLast, 1), 500);
  expect_failed(NakCode::kInvalidRequest, 1);
  const auto done = lab.end.poll();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].status, WcStatus::kLocalLengthError);
  EXPECT_EQ(done[1].status, WcStatus::kFlushError);
  EXPECT_EQ(lab.counters().resp_local_length_error, 1U);
}

TEST_F(Responder, AReceiveThatMayNotBeWrittenIsALocalProtectionError) {
  Buffer readonly = lab.host.buffer(100, 0);
  ASSERT_EQ(lab.end.receive(1, {readonly.sge(0, 100)}), 0);
  lab.receive(lab.request(Opcode::kRcSendOnly, 0), 10);
  expect_failed(NakCode::kRemoteOperational, 0);
  const auto done = lab.end.poll();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status, WcStatus::kLocalProtectionError);
}

TEST_F(Responder, PlacementThatFailsIsARemoteOperationalError) {
  const wire::Headers h = lab.write(Opcode::kRcWriteOnly, 0, target, 64);
  const RxVerdict verdict = lab.classify(h, 64);
  lab.host.engine.reject(verdict, h, 0);
  expect_failed(NakCode::kRemoteOperational, 0);

  Lab sent;
  Buffer bytes = sent.host.buffer(64);
  ASSERT_EQ(sent.end.receive(1, {bytes.sge(0, 64)}), 0);
  const wire::Headers s = sent.request(Opcode::kRcSendOnly, 0);
  sent.host.engine.reject(sent.classify(s, 64), s, 0);
  const auto done = sent.end.poll();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status, WcStatus::kLocalProtectionError);
  sent.expect_nak(NakCode::kRemoteOperational, 0);
}

}  // namespace
}  // namespace tensorwire::transport::test
