// READ and atomics at the responder, against a peer played packet by packet: what is answered in which order, what a
// duplicate gets, and what ends the queue pair.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>

#include "lab.hpp"

namespace tensorwire::transport::test {
namespace {

using wire::NakCode;
using wire::Opcode;

constexpr std::uint8_t kAck = wire::kSyndromeAck | wire::kCreditsInvalid;

class FetchResponder : public testing::Test {
 protected:
  Lab lab;
  Buffer source = lab.host.buffer(1 << 16);

  /// What leaves, as (opcode, PSN number, bytes).
  struct Expected {
    Opcode opcode;
    std::uint32_t n;
    std::uint32_t bytes = 0;
  };
  std::vector<Sent> expect_sent(const std::vector<Expected>& expected) {
    const auto sent = lab.pull();
    EXPECT_EQ(sent.size(), expected.size());
    for (std::size_t i = 0; i < std::min(sent.size(), expected.size()); ++i) {
      EXPECT_EQ(wire::name(sent[i].headers.opcode), wire::name(expected[i].opcode)) << i;
      EXPECT_EQ(sent[i].headers.psn, lab.psn(expected[i].n)) << i;
      EXPECT_EQ(sent[i].bytes, expected[i].bytes) << i;
      EXPECT_EQ(sent[i].headers.dest_qpn, Lab::kPeerQpn);
    }
    return sent;
  }
};

TEST_F(FetchResponder, AReadIsAnsweredInPackets) {
  EXPECT_EQ(lab.receive(lab.read(0, source, 2050, 7)).action, RxAction::kControl);
  const auto sent = expect_sent({{Opcode::kRcReadResponseFirst, 0, 1024},
                                 {Opcode::kRcReadResponseMiddle, 1, 1024},
                                 {Opcode::kRcReadResponseLast, 2, 2}});
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(sent[i].desc.piece_count, 1U);
    EXPECT_EQ(sent[i].desc.pieces[0].address, source.address(7 + i * 1024));
    EXPECT_EQ(sent[i].headers.syndrome, kAck);
    EXPECT_EQ(sent[i].headers.msn, 1U);
    EXPECT_FALSE(sent[i].retransmission);
  }
  EXPECT_EQ(sent[2].headers.pad, 2U);
  lab.receive(lab.read(3, source, 1024));
  expect_sent({{Opcode::kRcReadResponseOnly, 3, 1024}});
  wire::Headers nothing = lab.read(4, source, 0);
  nothing.rkey = 99;  // not looked at
  lab.receive(nothing);
  EXPECT_EQ(expect_sent({{Opcode::kRcReadResponseOnly, 4, 0}})[0].desc.piece_count, 0U);
  lab.receive(lab.write(Opcode::kRcWriteOnly, 5, source, 8), 8);
  lab.expect_ack(5);
}

TEST_F(FetchResponder, AnAtomicIsExecutedAndAnswered) {
  source.set_word(0, 40);
  lab.receive(lab.fetch_add(0, source, 2));
  EXPECT_EQ(source.word(0), 42U);
  auto sent = expect_sent({{Opcode::kRcAtomicAck, 0}});
  EXPECT_EQ(sent[0].headers.original, 40U);
  EXPECT_EQ(sent[0].headers.syndrome, kAck);
  EXPECT_EQ(sent[0].headers.msn, 1U);

  wire::Headers swap = lab.fetch_add(1, source, 7);
  swap.opcode = Opcode::kRcCompareSwap;
  swap.compare = 41;
  lab.receive(swap);
  EXPECT_EQ(source.word(0), 42U);
  swap = lab.fetch_add(2, source, 7);
  swap.opcode = Opcode::kRcCompareSwap;
  swap.compare = 42;
  lab.receive(swap);
  EXPECT_EQ(source.word(0), 7U);
  sent = expect_sent({{Opcode::kRcAtomicAck, 1}, {Opcode::kRcAtomicAck, 2}});
  EXPECT_EQ(sent[1].headers.original, 42U);
}

TEST_F(FetchResponder, AnswersKeepTheOrderOfRequests) {
  lab.receive(lab.write(Opcode::kRcWriteOnly, 0, source, 8), 8);  // its ACK has not left yet: the response says it, too
  lab.receive(lab.read(1, source, 2000));
  lab.receive(lab.fetch_add(3, source, 1));
  lab.receive(lab.write(Opcode::kRcWriteOnly, 4, source, 8), 8);
  lab.receive(lab.read(5, source, 8));
  lab.receive(lab.write(Opcode::kRcWriteOnly, 6, source, 8), 8);
  expect_sent({{Opcode::kRcReadResponseFirst, 1, 1024},
               {Opcode::kRcReadResponseLast, 2, 976},
               {Opcode::kRcAtomicAck, 3},
               {Opcode::kRcReadResponseOnly, 5, 8},
               {Opcode::kRcAck, 6}});
}

TEST_F(FetchResponder, ANakWaitsBehindTheResponses) {
  lab.receive(lab.read(0, source, 8));
  lab.receive(lab.write(Opcode::kRcWriteOnly, 3, source, 8), 8);
  auto sent = expect_sent({{Opcode::kRcReadResponseOnly, 0, 8}, {Opcode::kRcAck, 1}});
  EXPECT_EQ(sent[1].headers.syndrome, wire::kSyndromeNak);

  lab.receive(lab.read(1, source, 8));
  wire::Headers bad = lab.write(Opcode::kRcWriteOnly, 2, source, 8);
  bad.rkey ^= 1;
  lab.receive(bad, 8);
  EXPECT_EQ(lab.end.qp->state(), QpState::kErr);
  sent = expect_sent({{Opcode::kRcReadResponseOnly, 1, 8}, {Opcode::kRcAck, 2}});
  EXPECT_EQ(sent[1].headers.syndrome, wire::kSyndromeNak | static_cast<std::uint8_t>(NakCode::kRemoteAccess));
}

TEST_F(FetchResponder, ADuplicateReadIsReadAgain) {
  lab.receive(lab.read(0, source, 3000));
  lab.pull();
  EXPECT_EQ(lab.receive(lab.read(0, source, 3000)).action, RxAction::kControl);
  const auto sent = expect_sent({{Opcode::kRcReadResponseFirst, 0, 1024},
                                 {Opcode::kRcReadResponseMiddle, 1, 1024},
                                 {Opcode::kRcReadResponseLast, 2, 952}});
  EXPECT_TRUE(sent[0].retransmission);
  lab.receive(lab.read(1, source, 3000 - 1024, 1024));  // from where an answer was lost
  expect_sent({{Opcode::kRcReadResponseFirst, 1, 1024}, {Opcode::kRcReadResponseLast, 2, 952}});
  lab.receive(lab.read(2, source, 952, 2048));
  expect_sent({{Opcode::kRcReadResponseOnly, 2, 952}});
  lab.receive(lab.read(1, source, 1024, 1024));  // or only a part
  expect_sent({{Opcode::kRcReadResponseOnly, 1, 1024}});
  EXPECT_EQ(lab.counters().duplicate_request, 4U);
  EXPECT_EQ(lab.counters().rx_read_requests, 1U);
  lab.receive(lab.write(Opcode::kRcWriteOnly, 3, source, 8), 8);
  lab.expect_ack(3);
}

TEST_F(FetchResponder, WhatWasNotAskedForFirstIsNoDuplicate) {
  Buffer secret = lab.host.buffer(4096);
  lab.receive(lab.read(0, source, 3000));
  lab.receive(lab.fetch_add(3, source, 1));
  lab.pull();
  const std::uint64_t before = source.word(0);
  lab.receive(lab.read(0, source, 3001));               // longer
  lab.receive(lab.read(0, source, 3000, 1));            // elsewhere
  lab.receive(lab.read(1, source, 3000 - 1024, 1020));  // not where this PSN is
  lab.receive(lab.read(1, source, 3000, 1024));         // beyond the end
  lab.receive(lab.read(0, secret, 3000));               // another region
  lab.receive(lab.fetch_add(0, source, 1));             // another operation
  wire::Headers swap = lab.fetch_add(3, source, 1);
  swap.opcode = Opcode::kRcCompareSwap;
  lab.receive(swap);
  wire::Headers other = lab.fetch_add(3, source, 1);
  other.va += 8;
  lab.receive(other);
  lab.receive(lab.read(0xc00000, source, 10));  // nobody remembers
  EXPECT_FALSE(lab.host.engine.has_tx());
  EXPECT_EQ(source.word(0), before);
  EXPECT_EQ(lab.end.qp->state(), QpState::kRts);
}

TEST_F(FetchResponder, ADuplicateAtomicGetsTheSavedValueAndDoesNothing) {
  source.set_word(0, 40);
  lab.receive(lab.fetch_add(0, source, 2));
  lab.pull();
  source.set_word(0, 1000);  // somebody else's
  lab.receive(lab.fetch_add(0, source, 2));
  EXPECT_EQ(source.word(0), 1000U);
  EXPECT_EQ(expect_sent({{Opcode::kRcAtomicAck, 0}})[0].headers.original, 40U);
  EXPECT_EQ(lab.counters().rx_atomic_requests, 1U);
}

TEST_F(FetchResponder, OnlyAsManyAreRememberedAsWereAgreed) {
  for (std::uint32_t n = 0; n < 5; ++n) lab.receive(lab.fetch_add(n, source, 1)), lab.pull();
  lab.receive(lab.fetch_add(0, source, 1));  // the fifth took its place
  EXPECT_FALSE(lab.host.engine.has_tx());
  for (std::uint32_t n = 1; n < 5; ++n) {
    lab.receive(lab.fetch_add(n, source, 1));
    EXPECT_EQ(expect_sent({{Opcode::kRcAtomicAck, n}})[0].headers.original, n);
  }
  EXPECT_EQ(source.word(0), 5U);
}

TEST_F(FetchResponder, ADuplicateSendIsAcknowledgedUpToTheNextRead) {
  lab.receive(lab.write(Opcode::kRcWriteOnly, 0, source, 8), 8);
  lab.receive(lab.write(Opcode::kRcWriteOnly, 1, source, 8), 8);
  lab.receive(lab.read(2, source, 8));
  lab.receive(lab.write(Opcode::kRcWriteOnly, 3, source, 8), 8);
  lab.pull();
  lab.receive(lab.write(Opcode::kRcWriteOnly, 0, source, 8), 8);
  lab.expect_ack(1);  // an ACK of 3 would say that the response was lost
  lab.receive(lab.write(Opcode::kRcWriteOnly, 3, source, 8), 8);
  lab.receive(lab.write(Opcode::kRcWriteOnly, 0, source, 8), 8);
  lab.expect_ack(3);
}

TEST_F(FetchResponder, TooManyOutstandingAreAnInvalidRequest) {
  for (std::uint32_t n = 0; n < 4; ++n) lab.receive(lab.read(n, source, 8));
  EXPECT_EQ(lab.end.qp->state(), QpState::kRts);
  lab.receive(lab.read(4, source, 8));
  EXPECT_EQ(lab.end.qp->state(), QpState::kErr);
  const auto sent = expect_sent({{Opcode::kRcReadResponseOnly, 0, 8},
                                 {Opcode::kRcReadResponseOnly, 1, 8},
                                 {Opcode::kRcReadResponseOnly, 2, 8},
                                 {Opcode::kRcReadResponseOnly, 3, 8},
                                 {Opcode::kRcAck, 4}});
  EXPECT_EQ(sent.back().headers.syndrome, wire::kSyndromeNak | static_cast<std::uint8_t>(NakCode::kInvalidRequest));
}

// An answer that is given again holds no resource: its first copy may have arrived, and the peer gone on.
TEST_F(FetchResponder, ARepetitionMakesRoomForARequest) {
  for (std::uint32_t n = 0; n < 4; ++n) lab.receive(lab.read(n, source, 8));
  lab.pull();
  lab.receive(lab.read(0, source, 8));
  lab.receive(lab.read(4, source, 8));
  expect_sent({{Opcode::kRcReadResponseOnly, 4, 8}});
  EXPECT_EQ(lab.end.qp->state(), QpState::kRts);
}

TEST_F(FetchResponder, InvalidRequests) {
  const auto refused = [](const std::function<void(wire::Headers&)>& spoil, const Connection& c = {}) {
    Lab fresh(c);
    Buffer bytes = fresh.host.buffer(4096);
    wire::Headers h = fresh.read(0, bytes, 100);
    spoil(h);
    fresh.receive(h);
    fresh.expect_nak(NakCode::kInvalidRequest, 0);
    EXPECT_EQ(fresh.end.qp->state(), QpState::kErr);
    EXPECT_TRUE(fresh.host.events.has(AsyncEvent::kQpRequestError));
  };
  refused([](wire::Headers& h) { h.dma_length = 0x80000001U; });
  refused([](wire::Headers& h) { h.opcode = Opcode::kRcFetchAdd, h.va += 4; });
  refused([](wire::Headers& h) { h.opcode = Opcode::kRcCompareSwap, h.va += 1; });
  Connection none;
  none.rd_atomic = 0;
  refused([](wire::Headers&) {}, none);
  refused([](wire::Headers& h) { h.opcode = Opcode::kRcFetchAdd; }, none);

  lab.receive(lab.write(Opcode::kRcWriteFirst, 0, source, 2000), 1024);
  lab.pull();
  lab.receive(lab.read(1, source, 8));  // in the middle of a message
  lab.expect_nak(NakCode::kInvalidRequest, 1);
}

TEST_F(FetchResponder, ARegionThatGoesAwayWhileTheAnswerLeaves) {
  lab.receive(lab.read(0, source, 8));
  lab.receive(lab.read(1, source, 3000));
  lab.receive(lab.read(4, source, 8));
  EXPECT_EQ(lab.pull(2).size(), 2U);
  ASSERT_TRUE(lab.host.engine.memory().remove(source.key));
  lab.expect_nak(NakCode::kRemoteAccess, 2);  // in the place of the second packet
  EXPECT_EQ(lab.end.qp->state(), QpState::kErr);
  EXPECT_TRUE(lab.host.events.has(AsyncEvent::kQpAccessError));
}

// The response was owed when a later request failed the queue pair: its NAK goes out in the place of the response, and
// the failure is told once.
TEST_F(FetchResponder, ARegionThatGoesAwayBeforeTheRequestThatFails) {
  lab.receive(lab.read(0, source, 8));
  ASSERT_TRUE(lab.host.engine.memory().remove(source.key));
  lab.receive(lab.write(Opcode::kRcWriteOnly, 1, source, 8), 8);
  EXPECT_EQ(lab.end.qp->state(), QpState::kErr);
  lab.expect_nak(NakCode::kRemoteAccess, 0);
  EXPECT_TRUE(lab.host.events.has(AsyncEvent::kQpAccessError));
  EXPECT_EQ(lab.host.events.all.size(), 1U);
  EXPECT_FALSE(lab.host.engine.has_tx());
}

TEST_F(FetchResponder, ARepetitionFromARegionThatIsGoneIsNotGiven) {
  lab.receive(lab.read(0, source, 8));
  EXPECT_EQ(lab.pull().size(), 1U);
  lab.receive(lab.read(0, source, 8));
  ASSERT_TRUE(lab.host.engine.memory().remove(source.key));
  EXPECT_TRUE(lab.pull().empty());
  EXPECT_EQ(lab.end.qp->state(), QpState::kRts);
  EXPECT_FALSE(lab.host.engine.has_tx());
  EXPECT_EQ(lab.counters().resp_remote_access_errors, 0U);
}

TEST_F(FetchResponder, ASourceThatTheLinkCannotReadIsARemoteOperationalError) {
  lab.receive(lab.read(0, source, 3000));
  lab.receive(lab.write(Opcode::kRcWriteOnly, 3, source, 8), 8);
  const auto sent = lab.pull(2);
  ASSERT_EQ(sent.size(), 2U);
  lab.host.engine.tx_failed(sent[1].desc, lab.now);
  lab.expect_nak(NakCode::kRemoteOperational, 1);
  EXPECT_EQ(lab.end.qp->state(), QpState::kErr);
}

TEST_F(FetchResponder, AnErrorOfOurOwnEndsAllAnswers) {
  lab.receive(lab.read(0, source, 3000));
  QpAttr attr;
  attr.state = QpState::kErr;
  ASSERT_EQ(lab.host.engine.modify_qp(*lab.end.qp, attr, kAttrState, 0), 0);
  EXPECT_FALSE(lab.host.engine.has_tx());
  attr.state = QpState::kReset;
  ASSERT_EQ(lab.host.engine.modify_qp(*lab.end.qp, attr, kAttrState, 0), 0);
  lab.bring_up(*lab.end.qp);
  lab.receive(lab.read(0, source, 8));
  expect_sent({{Opcode::kRcReadResponseOnly, 0, 8}});
}

TEST_F(FetchResponder, ADestroyedQueuePairAnswersNoMore) {
  lab.receive(lab.read(0, source, 3000));
  lab.host.engine.destroy_qp(*lab.end.qp);
  EXPECT_FALSE(lab.host.engine.has_tx());
}

// Responses need no window, and neither they nor requests starve the other.
TEST_F(FetchResponder, ResponsesAndRequestsShareThePath) {
  lab.receive(lab.read(0, source, 1 << 16));
  const std::array sges = {source.sge(0, 1 << 16)};
  ASSERT_EQ(lab.end.send(write_wr(1, sges, 0, 0)), 0);
  std::array<TxDesc, 16> batch;
  std::array<std::size_t, 2> kinds{};
  for (int i = 0; i < 4; ++i) {
    const std::size_t n = lab.host.engine.next_tx(lab.now, 1 << 20, batch);
    ASSERT_EQ(n, 16U);
    for (std::size_t k = 1; k < n; ++k)
      EXPECT_EQ(wire::traits(batch[k].headers.opcode).response, wire::traits(batch[0].headers.opcode).response);
    ++kinds[wire::traits(batch[0].headers.opcode).response ? 0 : 1];
  }
  EXPECT_EQ(kinds[0], 2U);
  EXPECT_EQ(kinds[1], 2U);

  lab.host.engine.set_path_window(lab.path, 1024);
  std::size_t responses = 0;
  for (const Sent& sent : lab.pull()) responses += wire::traits(sent.headers.opcode).response ? 1 : 0;
  EXPECT_EQ(responses, 32U);
}

}  // namespace
}  // namespace tensorwire::transport::test
