// READ and atomics at the requester, against a peer played packet by packet: requests, limits, fences, which responses
// are taken, and what a missing or a false one leads to.
#include <gtest/gtest.h>

#include <array>

#include "lab.hpp"

namespace tensorwire::transport::test {
namespace {

using wire::NakCode;
using wire::Opcode;

class FetchRequester : public testing::Test {
 protected:
  Lab lab;
  Buffer landing = lab.host.buffer(1 << 20);
  static constexpr std::uint64_t kRemote = 0x123456780;
  static constexpr std::uint32_t kKey = 0xabcd;
  static constexpr Ps kTimeout = (4'096 * kNanosecond) << 8;

  void read(std::uint64_t wr_id, std::uint32_t length, Lab& by) {
    const std::array sges = {landing.sge(0, length)};
    ASSERT_EQ(by.end.send(read_wr(wr_id, sges, kRemote, kKey), by.now), 0);
  }
  void read(std::uint64_t wr_id, std::uint32_t length) { read(wr_id, length, lab); }
  void write(std::uint64_t wr_id, bool fence = false) {
    const std::array sges = {landing.sge(0, 100)};
    SendWr wr = write_wr(wr_id, sges, kRemote, kKey);
    wr.fence = fence;
    ASSERT_EQ(lab.end.send(wr, lab.now), 0);
  }
  void add(std::uint64_t wr_id) {
    const std::array sges = {landing.sge(64, 8)};
    ASSERT_EQ(lab.end.send(fetch_add_wr(wr_id, sges, kRemote, kKey, 17), lab.now), 0);
  }
  RxVerdict respond(Opcode opcode, std::uint32_t n, std::uint32_t bytes) {
    return lab.receive(Lab::response(opcode, lab.psn(n)), bytes);
  }
  RxVerdict answer_atomic(std::uint32_t n, std::uint64_t original) {
    wire::Headers h = Lab::response(Opcode::kRcAtomicAck, lab.psn(n));
    h.original = original;
    return lab.receive(h);
  }
  void expect_completions(std::vector<std::pair<std::uint64_t, WcStatus>> expected) {
    const auto done = lab.end.poll();
    ASSERT_EQ(done.size(), expected.size());
    for (std::size_t i = 0; i < done.size(); ++i) {
      EXPECT_EQ(done[i].wr_id, expected[i].first);
      EXPECT_EQ(done[i].status, expected[i].second);
    }
  }
};

TEST_F(FetchRequester, AReadTakesThePsnsOfItsResponses) {
  read(1, 2050);
  add(2);
  write(3);
  const auto sent = lab.pull();
  ASSERT_EQ(sent.size(), 3U);
  const wire::Headers& h = sent[0].headers;
  EXPECT_EQ(h.opcode, Opcode::kRcReadRequest);
  EXPECT_EQ(h.va, kRemote);
  EXPECT_EQ(h.rkey, kKey);
  EXPECT_EQ(h.dma_length, 2050U);
  EXPECT_EQ(h.psn, lab.psn(0));
  EXPECT_EQ(h.dest_qpn, Lab::kPeerQpn);
  EXPECT_EQ(h.pad, 0U);
  EXPECT_EQ(sent[0].bytes, 0U);
  EXPECT_EQ(sent[0].desc.piece_count, 0U);
  EXPECT_EQ(sent[1].headers.psn, lab.psn(3));
  EXPECT_EQ(sent[2].headers.psn, lab.psn(4));
}

TEST_F(FetchRequester, HeadersOfAtomics) {
  const std::array sges = {landing.sge(0, 8)};
  ASSERT_EQ(lab.end.send(fetch_add_wr(1, sges, kRemote, kKey, 5)), 0);
  ASSERT_EQ(lab.end.send(compare_swap_wr(2, sges, kRemote + 8, kKey, 6, 7)), 0);
  const auto sent = lab.pull();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].headers.opcode, Opcode::kRcFetchAdd);
  EXPECT_EQ(sent[0].headers.va, kRemote);
  EXPECT_EQ(sent[0].headers.swap_add, 5U);
  EXPECT_EQ(sent[0].headers.compare, 0U);
  EXPECT_EQ(sent[1].headers.opcode, Opcode::kRcCompareSwap);
  EXPECT_EQ(sent[1].headers.va, kRemote + 8);
  EXPECT_EQ(sent[1].headers.compare, 6U);
  EXPECT_EQ(sent[1].headers.swap_add, 7U);
  EXPECT_EQ(sent[1].headers.rkey, kKey);
}

TEST_F(FetchRequester, ResponsesGoWhereTheirPsnSays) {
  const std::array sges = {landing.sge(0, 1500), landing.sge(5000, 550)};
  ASSERT_EQ(lab.end.send(read_wr(1, sges, kRemote, kKey)), 0);
  lab.pull();
  RxVerdict v = respond(Opcode::kRcReadResponseFirst, 0, 1024);
  EXPECT_EQ(v.action, RxAction::kPlace);
  EXPECT_TRUE(v.verify_first);
  ASSERT_EQ(v.piece_count, 1U);
  EXPECT_EQ(v.pieces[0].address, landing.address());
  v = respond(Opcode::kRcReadResponseMiddle, 1, 1024);
  EXPECT_FALSE(v.verify_first);
  ASSERT_EQ(v.piece_count, 2U);
  EXPECT_EQ(v.pieces[0].address, landing.address(1024));
  EXPECT_EQ(v.pieces[0].length, 476U);
  EXPECT_EQ(v.pieces[1].address, landing.address(5000));
  EXPECT_EQ(v.pieces[1].length, 548U);
  expect_completions({});
  v = respond(Opcode::kRcReadResponseLast, 2, 2);
  EXPECT_EQ(v.pieces[0].address, landing.address(5548));
  expect_completions({{1, WcStatus::kSuccess}});
  EXPECT_EQ(lab.host.engine.next_deadline(), kNever);
}

TEST_F(FetchRequester, AnAtomicAnswerIsStored) {
  add(1);
  lab.pull();
  EXPECT_EQ(answer_atomic(0, 0x0102030405060708).action, RxAction::kControl);
  EXPECT_EQ(landing.word(64), 0x0102030405060708U);
  expect_completions({{1, WcStatus::kSuccess}});
}

TEST_F(FetchRequester, AResponseAcknowledgesAllBeforeIt) {
  write(1);
  write(2);
  read(3, 10);
  lab.pull();
  respond(Opcode::kRcReadResponseOnly, 2, 10);
  expect_completions({{1, WcStatus::kSuccess}, {2, WcStatus::kSuccess}, {3, WcStatus::kSuccess}});
}

TEST_F(FetchRequester, AMissingResponseIsAskedForFromWhereItIsMissing) {
  read(1, 5000);
  write(2);
  EXPECT_EQ(lab.pull().size(), 2U);
  respond(Opcode::kRcReadResponseFirst, 0, 1024);
  EXPECT_EQ(respond(Opcode::kRcReadResponseMiddle, 2, 1024).piece_count, 0U);
  auto sent = lab.pull();
  ASSERT_EQ(sent.size(), 2U);  // and what came after it
  EXPECT_EQ(sent[0].headers.opcode, Opcode::kRcReadRequest);
  EXPECT_EQ(sent[0].headers.psn, lab.psn(1));
  EXPECT_EQ(sent[0].headers.va, kRemote + 1024);
  EXPECT_EQ(sent[0].headers.dma_length, 5000U - 1024);
  EXPECT_TRUE(sent[0].retransmission);
  EXPECT_EQ(sent[1].headers.psn, lab.psn(5));
  EXPECT_EQ(lab.counters().implied_nak_seq_err, 1U);

  // What is still on its way beyond the gap asks for nothing more.
  respond(Opcode::kRcReadResponseMiddle, 3, 1024);
  lab.ack(5);
  EXPECT_TRUE(lab.pull().empty());

  respond(Opcode::kRcReadResponseFirst, 1, 1024);
  respond(Opcode::kRcReadResponseMiddle, 2, 1024);
  respond(Opcode::kRcReadResponseMiddle, 3, 1024);
  respond(Opcode::kRcReadResponseLast, 4, 904);
  expect_completions({{1, WcStatus::kSuccess}});
  lab.ack(5);
  expect_completions({{2, WcStatus::kSuccess}});
}

TEST_F(FetchRequester, AnAckBeyondAReadIsAnImpliedNak) {
  write(1);
  read(2, 10);
  write(3);
  lab.pull();
  lab.ack(2);
  expect_completions({{1, WcStatus::kSuccess}});  // nothing says otherwise of the first
  const auto sent = lab.pull();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].headers.psn, lab.psn(1));
  EXPECT_EQ(lab.counters().implied_nak_seq_err, 1U);
  lab.nak(2, NakCode::kRemoteAccess);  // of a request that the peer has seen: but the READ is still without answer
  expect_completions({});
  respond(Opcode::kRcReadResponseOnly, 1, 10);
  lab.nak(2, NakCode::kRemoteAccess);
  expect_completions({{2, WcStatus::kSuccess}, {3, WcStatus::kRemoteAccessError}});
}

TEST_F(FetchRequester, ImpliedNaksUseUpRetries) {
  Connection c;
  c.retry_cnt = 2;
  Lab few(c);
  Buffer bytes = few.host.buffer(100);
  const std::array sges = {bytes.sge(0, 10)};
  ASSERT_EQ(few.end.send(read_wr(1, sges, kRemote, kKey)), 0);
  ASSERT_EQ(few.end.send(write_wr(2, sges, kRemote, kKey)), 0);
  few.pull();
  few.ack(1);
  EXPECT_EQ(few.pull().size(), 2U);
  few.ack(1);  // one retry until there is progress or a timeout
  EXPECT_TRUE(few.pull().empty());
  few.timer_at(few.host.engine.next_deadline());
  EXPECT_EQ(few.pull().size(), 2U);
  few.timer_at(few.host.engine.next_deadline());
  const auto done = few.end.poll();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].status, WcStatus::kRetryExceeded);
}

TEST_F(FetchRequester, ATimeoutReadsAgainFromTheFirstMissingPacket) {
  read(1, 3000);
  lab.pull();
  respond(Opcode::kRcReadResponseFirst, 0, 1024);
  lab.timer_at(lab.now + kTimeout);
  const auto sent = lab.pull();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].headers.psn, lab.psn(1));
  EXPECT_EQ(sent[0].headers.dma_length, 3000U - 1024);
  // The first answer's packets are as good as the second's, in any mixture.
  respond(Opcode::kRcReadResponseMiddle, 1, 1024);
  EXPECT_EQ(respond(Opcode::kRcReadResponseFirst, 1, 1024).drop, DropReason::kStale);
  respond(Opcode::kRcReadResponseLast, 2, 952);
  expect_completions({{1, WcStatus::kSuccess}});
  EXPECT_EQ(respond(Opcode::kRcReadResponseLast, 2, 952).drop, DropReason::kStale);
}

TEST_F(FetchRequester, NoMoreThanMaxRdAtomicAreOutstanding) {
  for (std::uint64_t i = 0; i < 6; ++i) read(i, 10);
  write(6);
  EXPECT_EQ(lab.pull().size(), 4U);
  respond(Opcode::kRcReadResponseOnly, 0, 10);
  EXPECT_EQ(lab.pull().size(), 1U);
  respond(Opcode::kRcReadResponseOnly, 1, 10);
  EXPECT_EQ(lab.pull().size(), 2U);  // the last READ, and the WRITE behind it
}

TEST_F(FetchRequester, AFenceWaitsForReadsAndAtomicsBeforeIt) {
  read(1, 10);
  add(2);
  write(3);
  write(4, true);
  read(5, 10);
  EXPECT_EQ(lab.pull().size(), 3U);
  respond(Opcode::kRcReadResponseOnly, 0, 10);
  EXPECT_TRUE(lab.pull().empty());
  answer_atomic(1, 0);
  const auto sent = lab.pull();
  ASSERT_EQ(sent.size(), 2U);  // not for the WRITE before it, and not for the READ behind it
  EXPECT_EQ(sent[0].headers.psn, lab.psn(3));

  // Sent again, it does not wait for the READ that left after it.
  lab.timer_at(lab.now + kTimeout);
  EXPECT_EQ(lab.pull().size(), 3U);
}

TEST_F(FetchRequester, AFalseResponseEndsTheQueuePair) {
  struct Case {
    const char* what;
    Opcode opcode;
    std::uint32_t n;
    std::uint32_t bytes;
    std::uint8_t syndrome = wire::kCreditsInvalid;
  };
  const std::array cases = {
      Case{"short first", Opcode::kRcReadResponseFirst, 0, 1020},
      Case{"last too early", Opcode::kRcReadResponseLast, 0, 1024},
      Case{"only of a longer one", Opcode::kRcReadResponseOnly, 0, 1024},
      Case{"middle without first", Opcode::kRcReadResponseMiddle, 0, 1024},
      Case{"an atomic's answer", Opcode::kRcAtomicAck, 0, 0},
      Case{"a NAK inside", Opcode::kRcReadResponseFirst, 0, 1024, wire::kSyndromeNak},
      Case{"an RNR NAK inside", Opcode::kRcReadResponseFirst, 0, 1024, wire::kSyndromeRnrNak},
      Case{"long last", Opcode::kRcReadResponseLast, 2, 8},
      Case{"middle at the end", Opcode::kRcReadResponseMiddle, 2, 1024},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Lab fresh;
    Buffer bytes = fresh.host.buffer(4096);
    const std::array sges = {bytes.sge(0, 2052)};
    ASSERT_EQ(fresh.end.send(read_wr(1, sges, kRemote, kKey)), 0);
    fresh.pull();
    if (c.n == 2) {
      fresh.receive(Lab::response(Opcode::kRcReadResponseFirst, fresh.psn(0)), 1024);
      fresh.receive(Lab::response(Opcode::kRcReadResponseMiddle, fresh.psn(1)), 1024);
    }
    wire::Headers h = Lab::response(c.opcode, fresh.psn(c.n));
    h.syndrome = c.syndrome;
    EXPECT_EQ(fresh.receive(h, c.bytes).piece_count, 0U);
    const auto done = fresh.end.poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, WcStatus::kBadResponseError);
    EXPECT_EQ(fresh.end.qp->state(), QpState::kErr);
  }
  add(1);
  lab.pull();
  respond(Opcode::kRcReadResponseOnly, 0, 8);
  expect_completions({{1, WcStatus::kBadResponseError}});
}

TEST_F(FetchRequester, ResponsesToNothingAreStale) {
  write(1);
  lab.pull();
  EXPECT_EQ(respond(Opcode::kRcReadResponseOnly, 0, 8).drop, DropReason::kStale);
  EXPECT_EQ(answer_atomic(0, 1).drop, DropReason::kStale);
  read(2, 8);
  lab.pull();
  EXPECT_EQ(respond(Opcode::kRcReadResponseOnly, 0, 8).drop, DropReason::kStale);  // the PSN of the WRITE
  EXPECT_EQ(respond(Opcode::kRcReadResponseOnly, 2, 8).drop, DropReason::kStale);  // never sent
  expect_completions({});
}

TEST_F(FetchRequester, ClassifyChangesNothingAndAnOvertakenJudgementIsForgotten) {
  add(1);
  add(2);
  lab.pull();
  wire::Headers h = Lab::response(Opcode::kRcAtomicAck, lab.psn(0));
  h.original = 5;
  const RxVerdict verdict = lab.classify(h, 0);
  expect_completions({});
  lab.host.engine.commit(verdict, h, 0, lab.now);
  lab.host.engine.commit(verdict, h, 0, lab.now);
  expect_completions({{1, WcStatus::kSuccess}});
}

TEST_F(FetchRequester, ANakInTheMiddleOfAReadIsItsOwn) {
  read(1, 3000);
  write(2);
  lab.pull();
  respond(Opcode::kRcReadResponseFirst, 0, 1024);
  lab.nak(1, NakCode::kRemoteOperational);
  expect_completions({{1, WcStatus::kRemoteOperationError}, {2, WcStatus::kFlushError}});
}

TEST_F(FetchRequester, BytesThatCannotBePlacedAreALocalProtectionError) {
  write(1);
  read(2, 100);
  lab.pull();
  const wire::Headers h = Lab::response(Opcode::kRcReadResponseOnly, lab.psn(1));
  const RxVerdict verdict = lab.classify(h, 100);
  lab.host.engine.reject(verdict, h, lab.now);
  expect_completions({{1, WcStatus::kSuccess}, {2, WcStatus::kLocalProtectionError}});

  Lab gone;
  Buffer bytes = gone.host.buffer(100);
  const std::array sges = {bytes.sge(0, 8)};
  ASSERT_EQ(gone.end.send(fetch_add_wr(1, sges, kRemote, kKey, 1)), 0);
  gone.pull();
  ASSERT_TRUE(gone.host.engine.memory().remove(bytes.key));
  gone.receive(Lab::response(Opcode::kRcAtomicAck, gone.psn(0)));
  ASSERT_EQ(gone.end.poll().at(0).status, WcStatus::kLocalProtectionError);
}

// Nobody acknowledges responses, so a READ longer than half the window is asked for in parts.
TEST_F(FetchRequester, ALongReadIsAskedForInParts) {
  EngineConfig config;
  config.qp_window_bytes = 8 * 1024;
  Lab small({}, config);
  Buffer bytes = small.host.buffer(1 << 16);
  const std::array sges = {bytes.sge(0, 10 * 1024)};
  ASSERT_EQ(small.end.send(read_wr(1, sges, kRemote, kKey)), 0);
  auto sent = small.pull();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].headers.dma_length, 4096U);
  EXPECT_EQ(sent[1].headers.dma_length, 4096U);
  EXPECT_EQ(sent[1].headers.va, kRemote + 4096);
  EXPECT_EQ(sent[1].headers.psn, small.psn(4));
  const auto respond_to = [&](Opcode opcode, std::uint32_t n) {
    small.receive(Lab::response(opcode, small.psn(n)), 1024);
  };
  respond_to(Opcode::kRcReadResponseFirst, 0);
  EXPECT_TRUE(small.pull().empty());
  respond_to(Opcode::kRcReadResponseMiddle, 1);
  sent = small.pull();
  ASSERT_EQ(sent.size(), 1U);  // the rest, as soon as it fits
  EXPECT_EQ(sent[0].headers.dma_length, 2048U);
  EXPECT_EQ(sent[0].headers.psn, small.psn(8));
  respond_to(Opcode::kRcReadResponseMiddle, 4);  // a gap: from the middle of the first part to its end, then the others
  sent = small.pull();
  ASSERT_EQ(sent.size(), 3U);
  EXPECT_EQ(sent[0].headers.psn, small.psn(2));
  EXPECT_EQ(sent[0].headers.dma_length, 2048U);
  EXPECT_EQ(sent[1].headers.psn, small.psn(4));
  EXPECT_EQ(sent[2].headers.psn, small.psn(8));
  respond_to(Opcode::kRcReadResponseFirst, 2);
  respond_to(Opcode::kRcReadResponseLast, 3);
  respond_to(Opcode::kRcReadResponseFirst, 4);
  respond_to(Opcode::kRcReadResponseMiddle, 5);
  respond_to(Opcode::kRcReadResponseMiddle, 6);
  respond_to(Opcode::kRcReadResponseLast, 7);
  respond_to(Opcode::kRcReadResponseFirst, 8);
  EXPECT_TRUE(small.end.poll().empty());
  respond_to(Opcode::kRcReadResponseLast, 9);
  ASSERT_EQ(small.end.poll().size(), 1U);
  EXPECT_EQ(small.host.engine.next_deadline(), kNever);
}

TEST_F(FetchRequester, AResetQueuePairForgetsItsFetches) {
  for (std::uint64_t i = 0; i < 6; ++i) read(i, 10);
  lab.pull();
  QpAttr attr;
  attr.state = QpState::kReset;
  ASSERT_EQ(lab.host.engine.modify_qp(*lab.end.qp, attr, kAttrState, 0), 0);
  lab.bring_up(*lab.end.qp);
  for (std::uint64_t i = 0; i < 6; ++i) read(i, 10);
  EXPECT_EQ(lab.pull().size(), 4U);
  respond(Opcode::kRcReadResponseOnly, 0, 10);
  expect_completions({{0, WcStatus::kSuccess}});
}

}  // namespace
}  // namespace tensorwire::transport::test
