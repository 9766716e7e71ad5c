// The requester against a peer played packet by packet: headers, AckReq, cumulative ACK, go-back-N, RNR, limits,
// timers, errors and flush.
#include <gtest/gtest.h>

#include <array>

#include "lab.hpp"
#include "transport/timing.hpp"

namespace tensorwire::transport::test {
namespace {

using wire::NakCode;
using wire::Opcode;

class Requester : public testing::Test {
 protected:
  Lab lab;
  Buffer source = lab.host.buffer(1 << 20);

  void post(std::uint64_t wr_id, std::uint32_t length, Lab& to) {
    const std::array sges = {source.sge(0, length)};
    ASSERT_EQ(to.end.send(write_wr(wr_id, sges, 0x1000, 0x2000), to.now), 0);
  }
  void post(std::uint64_t wr_id, std::uint32_t length) { post(wr_id, length, lab); }

  static void expect_completions(Lab& of, std::vector<std::pair<std::uint64_t, WcStatus>> expected) {
    const auto done = of.end.poll();
    ASSERT_EQ(done.size(), expected.size());
    for (std::size_t i = 0; i < done.size(); ++i) {
      EXPECT_EQ(done[i].wr_id, expected[i].first);
      EXPECT_EQ(done[i].status, expected[i].second);
    }
  }
  void expect_completions(std::vector<std::pair<std::uint64_t, WcStatus>> expected) {
    expect_completions(lab, std::move(expected));
  }
  static constexpr Ps kTimeout = (4'096 * kNanosecond) << 8;
};

TEST_F(Requester, HeadersOfASegmentedWrite) {
  const std::array sges = {source.sge(0, 2050)};
  SendWr wr = write_imm_wr(1, sges, 0x123456789, 0xabcd, 0x55);
  wr.solicited = true;
  ASSERT_EQ(lab.end.send(wr), 0);
  const auto sent = lab.pull();
  ASSERT_EQ(sent.size(), 3U);
  EXPECT_EQ(sent[0].headers.opcode, Opcode::kRcWriteFirst);
  EXPECT_EQ(sent[1].headers.opcode, Opcode::kRcWriteMiddle);
  EXPECT_EQ(sent[2].headers.opcode, Opcode::kRcWriteLastImm);
  EXPECT_EQ(sent[0].headers.va, 0x123456789U);
  EXPECT_EQ(sent[0].headers.rkey, 0xabcdU);
  EXPECT_EQ(sent[0].headers.dma_length, 2050U);
  EXPECT_EQ(sent[2].headers.immediate, 0x55U);
  EXPECT_EQ(sent[2].bytes, 2U);
  EXPECT_EQ(sent[2].headers.pad, 2U);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(sent[i].headers.psn, lab.psn(i));
    EXPECT_EQ(sent[i].headers.dest_qpn, Lab::kPeerQpn);
    EXPECT_EQ(sent[i].headers.ack_req, i == 2);
    EXPECT_EQ(sent[i].headers.solicited, i == 2);
    EXPECT_EQ(sent[i].src_qpn, Lab::kQpn);
    EXPECT_FALSE(sent[i].retransmission);
  }
}

TEST_F(Requester, AsksForAcknowledgementsInsideLongMessages) {
  post(1, 40 * 1024);
  const auto sent = lab.pull();
  ASSERT_EQ(sent.size(), 40U);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(sent[i].headers.ack_req, i == 15 || i == 31 || i == 39) << i;
}

TEST_F(Requester, CumulativeAckCompletesInOrder) {
  post(1, 100);
  post(2, 3000);
  post(3, 100);
  EXPECT_EQ(lab.pull().size(), 5U);
  lab.ack(2);  // into the second message
  expect_completions({{1, WcStatus::kSuccess}});
  lab.ack(4);
  expect_completions({{2, WcStatus::kSuccess}, {3, WcStatus::kSuccess}});
  EXPECT_EQ(lab.host.engine.next_deadline(), kNever);
}

TEST_F(Requester, AnswersToWhatWasNeverSentAreStale) {
  post(1, 2048);
  EXPECT_EQ(lab.ack(0).drop, DropReason::kStale);  // nothing has left yet
  EXPECT_EQ(lab.pull(1).size(), 1U);
  EXPECT_EQ(lab.ack(1).drop, DropReason::kStale);
  EXPECT_EQ(lab.nak(1).drop, DropReason::kStale);
  EXPECT_EQ(lab.ack(0x7fffff).drop, DropReason::kStale);
  EXPECT_EQ(lab.ack(0).action, RxAction::kControl);
  EXPECT_EQ(lab.ack(0).drop, DropReason::kStale);  // a second time
  EXPECT_EQ(lab.pull().size(), 1U);
  expect_completions({});
  lab.ack(1);
  expect_completions({{1, WcStatus::kSuccess}});
}

TEST_F(Requester, SequenceNakAcknowledgesWhatCameBeforeAndGoesBack) {
  post(1, 1024);
  post(2, 4096);
  EXPECT_EQ(lab.pull().size(), 5U);
  lab.nak(3);
  expect_completions({{1, WcStatus::kSuccess}});
  const auto again = lab.pull();
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(again[0].headers.psn, lab.psn(3));
  EXPECT_EQ(again[0].headers.opcode, Opcode::kRcWriteMiddle);
  EXPECT_EQ(again[0].desc.pieces[0].address, source.address(2048));
  EXPECT_TRUE(again[0].retransmission);
  EXPECT_EQ(again[1].headers.opcode, Opcode::kRcWriteLast);
  EXPECT_EQ(lab.counters().retransmitted_packets, 2U);
  EXPECT_EQ(lab.counters().packet_seq_err, 1U);
  EXPECT_EQ(lab.ack(5).drop, DropReason::kStale);  // sending again creates no PSNs
  lab.ack(4);
  expect_completions({{2, WcStatus::kSuccess}});
}

TEST_F(Requester, OneRetrySequenceUntilProgressOrTimeout) {
  post(1, 4096);
  EXPECT_EQ(lab.pull().size(), 4U);
  lab.nak(1);
  EXPECT_EQ(lab.pull().size(), 3U);
  lab.nak(1);  // the same complaint, repeated by the network
  EXPECT_TRUE(lab.pull().empty());
  lab.nak(2);  // progress, then a new gap
  EXPECT_EQ(lab.pull().size(), 2U);
  lab.timer_at(lab.host.engine.next_deadline());
  EXPECT_EQ(lab.pull().size(), 2U);
  lab.nak(2);
  EXPECT_EQ(lab.pull().size(), 2U);
}

TEST_F(Requester, AnOldAcknowledgementSparesTheRetransmission) {
  post(1, 2048);
  post(2, 2048);
  EXPECT_EQ(lab.pull().size(), 4U);
  lab.timer_at(kTimeout);
  EXPECT_EQ(lab.pull(1).size(), 1U);
  lab.ack(2);  // was on its way: covers packet 0, which left again, and 1 and 2, which have not
  expect_completions({{1, WcStatus::kSuccess}});
  const auto rest = lab.pull();
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest[0].headers.psn, lab.psn(3));
  lab.ack(3);
  expect_completions({{2, WcStatus::kSuccess}});
  EXPECT_EQ(lab.host.engine.next_deadline(), kNever);
}

TEST_F(Requester, TimeoutIsExactAndRestartsWithProgress) {
  lab.now = 5;
  post(1, 2048);
  EXPECT_EQ(lab.host.engine.next_deadline(), kNever);
  EXPECT_EQ(lab.pull().size(), 2U);
  EXPECT_EQ(lab.host.engine.next_deadline(), 5 + kTimeout);
  lab.now = 1000;
  lab.ack(0);
  EXPECT_EQ(lab.host.engine.next_deadline(), 1000 + kTimeout);
  lab.timer_at(1000 + kTimeout - 1);
  EXPECT_FALSE(lab.host.engine.has_tx());
  lab.timer_at(1000 + kTimeout);
  const auto again = lab.pull();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].headers.psn, lab.psn(1));
  EXPECT_EQ(lab.counters().local_ack_timeout_err, 1U);
}

TEST_F(Requester, TimeoutFloorAndInfinity) {
  EngineConfig config;
  config.ack_timeout_floor = 20 * kMillisecond;
  Lab floored({}, config);
  Buffer from = floored.host.buffer(100);
  const std::array sges = {from.sge(0, 100)};
  ASSERT_EQ(floored.end.send(write_wr(1, sges, 0, 0)), 0);
  floored.pull();
  EXPECT_EQ(floored.host.engine.next_deadline(), 20 * kMillisecond);

  Connection endless;
  endless.timeout = 0;
  Lab patient(endless, config);
  Buffer other = patient.host.buffer(100);
  const std::array other_sges = {other.sge(0, 100)};
  ASSERT_EQ(patient.end.send(write_wr(1, other_sges, 0, 0)), 0);
  EXPECT_EQ(patient.pull().size(), 1U);
  EXPECT_EQ(patient.host.engine.next_deadline(), kNever);
}

TEST_F(Requester, RetryLimitCountsTimeoutsAndFlushesInOrder) {
  Connection c;
  c.retry_cnt = 2;
  Lab limited(c);
  Buffer from = limited.host.buffer(100);
  const std::array sges = {from.sge(0, 100)};
  ASSERT_EQ(limited.end.receive(50), 0);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    SendWr wr = write_wr(id, sges, 0, 0);
    wr.signaled = false;
    ASSERT_EQ(limited.end.send(wr), 0);
  }
  int transmissions = 0;
  while (limited.end.qp->state() == QpState::kRts) {
    transmissions += limited.pull().empty() ? 0 : 1;
    limited.timer_at(limited.host.engine.next_deadline());
  }
  EXPECT_EQ(transmissions, 3);
  EXPECT_EQ(limited.now, 3 * kTimeout);
  expect_completions(limited, {{1, WcStatus::kRetryExceeded},
                               {2, WcStatus::kFlushError},
                               {3, WcStatus::kFlushError},
                               {50, WcStatus::kFlushError}});
  EXPECT_EQ(limited.end.qp->state(), QpState::kErr);
  EXPECT_EQ(limited.host.engine.next_deadline(), kNever);
  EXPECT_FALSE(limited.host.engine.has_tx());
}

TEST_F(Requester, AnAcknowledgementRestoresTheRetries) {
  Connection c;
  c.retry_cnt = 1;
  Lab limited(c);
  Buffer from = limited.host.buffer(10'240);
  const std::array sges = {from.sge(0, 10'240)};
  ASSERT_EQ(limited.end.send(write_wr(1, sges, 0, 0)), 0);
  limited.pull();
  for (std::uint32_t n = 0; n < 10; ++n) {
    limited.timer_at(limited.host.engine.next_deadline());
    limited.pull();
    limited.ack(n);
  }
  expect_completions(limited, {{1, WcStatus::kSuccess}});
}

TEST_F(Requester, RnrWaitsItsTimeThenSendsAgain) {
  post(1, 1024);
  post(2, 1024);
  EXPECT_EQ(lab.pull().size(), 2U);
  lab.now = 1000;
  lab.rnr(1, 12);
  expect_completions({{1, WcStatus::kSuccess}});
  post(3, 1024);
  EXPECT_FALSE(lab.host.engine.has_tx());
  EXPECT_EQ(lab.host.engine.next_deadline(), 1000 + rnr_wait(12));
  lab.nak(1);  // a peer that also complains of the gap behind it
  EXPECT_FALSE(lab.host.engine.has_tx());
  lab.timer_at(1000 + rnr_wait(12));
  const auto again = lab.pull();
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(again[0].headers.psn, lab.psn(1));
  EXPECT_EQ(lab.counters().rnr_nak_retry_err, 1U);
  EXPECT_EQ(lab.counters().local_ack_timeout_err, 0U);
}

TEST_F(Requester, RnrLimitAndInfinity) {
  Connection c;
  c.rnr_retry = 2;
  Lab limited(c);
  Buffer from = limited.host.buffer(100);
  const std::array sges = {from.sge(0, 100)};
  ASSERT_EQ(limited.end.send(send_wr(1, sges)), 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(limited.pull().size(), 1U);
    limited.rnr(0, 1);
    if (i < 2) limited.timer_at(limited.host.engine.next_deadline());
  }
  expect_completions(limited, {{1, WcStatus::kRnrRetryExceeded}});

  post(1, 100);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(lab.pull().size(), 1U);
    lab.rnr(0, 1);
    lab.timer_at(lab.host.engine.next_deadline());
  }
  lab.pull();
  lab.ack(0);
  expect_completions({{1, WcStatus::kSuccess}});
}

TEST_F(Requester, FatalNaksFailTheirRequestAndFlushTheRest) {
  const std::array<std::pair<NakCode, WcStatus>, 3> cases = {{
      {NakCode::kInvalidRequest, WcStatus::kRemoteInvalidRequestError},
      {NakCode::kRemoteAccess, WcStatus::kRemoteAccessError},
      {NakCode::kRemoteOperational, WcStatus::kRemoteOperationError},
  }};
  for (const auto& [code, status] : cases) {
    Lab fresh;
    Buffer from = fresh.host.buffer(4096);
    const std::array sges = {from.sge(0, 2048)};
    ASSERT_EQ(fresh.end.receive(9), 0);
    for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_EQ(fresh.end.send(write_wr(id, sges, 0, 0)), 0);
    EXPECT_EQ(fresh.pull().size(), 6U);
    fresh.nak(3, code);
    expect_completions(fresh,
                       {{1, WcStatus::kSuccess}, {2, status}, {3, WcStatus::kFlushError}, {9, WcStatus::kFlushError}});
    EXPECT_EQ(fresh.end.qp->state(), QpState::kErr);
    EXPECT_EQ(fresh.ack(5).drop, DropReason::kWrongState);
  }
}

TEST_F(Requester, LocalProtectionErrorWaitsForWhatWasPostedBefore) {
  post(1, 1024);
  const std::array bad = {Sge{source.address(), 2000, source.key + 1}};
  ASSERT_EQ(lab.end.send(write_wr(2, bad, 0, 0)), 0);
  post(3, 10);
  EXPECT_EQ(lab.pull().size(), 1U);
  expect_completions({});
  lab.ack(0);
  expect_completions({{1, WcStatus::kSuccess}, {2, WcStatus::kLocalProtectionError}, {3, WcStatus::kFlushError}});
}

TEST_F(Requester, WholeScatterElementIsCheckedBeforeTheFirstByteLeaves) {
  const std::array beyond = {Sge{source.address((1 << 20) - 5000), 5001, source.key}};
  ASSERT_EQ(lab.end.send(write_wr(1, beyond, 0, 0)), 0);
  EXPECT_TRUE(lab.pull().empty());
  expect_completions({{1, WcStatus::kLocalProtectionError}});
}

TEST_F(Requester, ARegionThatGoesAwayInMidMessageIsFoundOut) {
  post(1, 1 << 14);
  EXPECT_EQ(lab.pull(4).size(), 4U);
  ASSERT_TRUE(lab.host.engine.memory().remove(source.key));
  EXPECT_TRUE(lab.pull().empty());
  expect_completions({{1, WcStatus::kLocalProtectionError}});
  EXPECT_EQ(lab.end.qp->state(), QpState::kErr);
}

TEST_F(Requester, SourceThatTheLinkCannotReadIsALocalProtectionError) {
  post(1, 1024);
  post(2, 4096);
  post(3, 1024);
  const auto sent = lab.pull();
  ASSERT_EQ(sent.size(), 6U);
  lab.host.engine.tx_failed(sent[2].desc, lab.now);
  EXPECT_TRUE(lab.pull().empty());
  expect_completions({});
  lab.ack(0);
  expect_completions({{1, WcStatus::kSuccess}, {2, WcStatus::kLocalProtectionError}, {3, WcStatus::kFlushError}});
  lab.host.engine.tx_failed(sent[2].desc, lab.now);  // and again, too late to matter
  expect_completions({});
}

TEST_F(Requester, PacketsThatTheLinkRefusesFailTheQueuePair) {
  post(1, 2048);
  post(2, 1024);
  ASSERT_EQ(lab.pull().size(), 3U);
  lab.host.engine.tx_refused(Lab::kQpn + 1, lab.now);  // nobody
  expect_completions({});
  lab.host.engine.tx_refused(Lab::kQpn, lab.now);
  expect_completions({{1, WcStatus::kLocalQpOperationError}, {2, WcStatus::kFlushError}});
  EXPECT_EQ(lab.end.qp->state(), QpState::kErr);
  lab.host.engine.tx_refused(Lab::kQpn, lab.now);  // and again
  expect_completions({});
}

TEST_F(Requester, AnAnswerThatTheLinkRefusesFailsTheQueuePairToo) {
  lab.host.engine.tx_refused(Lab::kQpn, lab.now);
  expect_completions({});
  EXPECT_EQ(lab.end.qp->state(), QpState::kErr);
}

TEST_F(Requester, AResetQueuePairForgetsItsWindow) {
  post(1, 1 << 19);
  lab.pull();
  QpAttr attr;
  attr.state = QpState::kReset;
  ASSERT_EQ(lab.host.engine.modify_qp(*lab.end.qp, attr, kAttrState, 0), 0);
  lab.host.engine.set_path_window(lab.path, 1024);
  lab.bring_up(*lab.end.qp);
  post(2, 1024);
  EXPECT_EQ(lab.pull().size(), 1U);
}

}  // namespace
}  // namespace tensorwire::transport::test
