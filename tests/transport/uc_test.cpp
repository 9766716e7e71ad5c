// UC: the messages of RC with nothing said of them. Whole messages arrive or nothing does, whatever the wire loses;
// what the peer does wrong is met with silence; a send is done when its last packet has left.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "transport/attributes.hpp"
#include "uc_lab.hpp"

namespace tensorwire::transport::test {
namespace {

// ---- two engines on a wire

class UcTest : public testing::Test {
 protected:
  World world;
  std::pair<End, End> ends = world.connect(0, 1, uc());
  End a = ends.first;
  End b = ends.second;
  Buffer source = a.host->buffer(8192);
  Buffer target = b.host->buffer(8192);

  void SetUp() override { fill(source.bytes, 7); }

  [[nodiscard]] bool arrived(std::size_t bytes) const {
    return std::equal(source.bytes.begin(), source.bytes.begin() + bytes, target.bytes.begin());
  }
};

TEST_F(UcTest, EveryOperationAtEveryLength) {
  for (const WrOpcode opcode : {WrOpcode::kSend, WrOpcode::kSendImm, WrOpcode::kWrite, WrOpcode::kWriteImm}) {
    for (const std::size_t length : {0U, 1U, 3U, 255U, 256U, 257U, 511U, 512U, 513U, 5000U}) {
      std::fill(target.bytes.begin(), target.bytes.end(), std::byte{0xee});
      const bool send = opcode == WrOpcode::kSend || opcode == WrOpcode::kSendImm;
      if (opcode != WrOpcode::kWrite) {
        ASSERT_EQ(b.receive(length, {target.sge(0, send ? length : 0)}), 0);
      }
      const std::array sges = {source.sge(0, length / 2), source.sge(length / 2, length - length / 2)};
      SendWr wr = write_imm_wr(100 + length, sges, target.address(), target.key, 0xcafe);
      wr.opcode = opcode;
      ASSERT_EQ(a.send(wr, world.loop.now()), 0);
      world.settle();
      const auto sent = a.poll();
      ASSERT_EQ(sent.size(), 1U);
      EXPECT_EQ(sent[0].status, WcStatus::kSuccess);
      EXPECT_EQ(sent[0].wr_id, 100 + length);
      EXPECT_TRUE(arrived(length)) << length;
      EXPECT_EQ(target.bytes[length], std::byte{0xee});
      const auto received = b.poll();
      ASSERT_EQ(received.size(), opcode == WrOpcode::kWrite ? 0U : 1U);
      if (received.empty()) continue;
      EXPECT_EQ(received[0].status, WcStatus::kSuccess);
      EXPECT_EQ(received[0].opcode, send ? WcOpcode::kRecv : WcOpcode::kRecvWithImm);
      EXPECT_EQ(received[0].byte_len, length);
      EXPECT_EQ(received[0].src_qp, a.qp->qpn());
      EXPECT_EQ(received[0].flags, opcode == WrOpcode::kSend ? 0U : kWcWithImm);
    }
  }
  EXPECT_EQ(b.host->engine.counters().tx_packets, 0U);  // nothing is answered
  EXPECT_EQ(a.host->engine.next_deadline(), kNever);
}

TEST_F(UcTest, NoWindowHoldsItBack) {
  a.host->engine.set_path_window(kDefaultPath, 512);
  Buffer large = a.host->buffer(1 << 20);
  Buffer there = b.host->buffer(1 << 20);
  const std::array sges = {large.sge(0, large.bytes.size())};
  ASSERT_EQ(a.send(write_wr(1, sges, there.address(), there.key)), 0);
  world.loop.pause(1, true);  // the peer says nothing
  world.settle();
  EXPECT_EQ(a.poll().size(), 1U);
  EXPECT_EQ(large.bytes, there.bytes);
}

TEST_F(UcTest, NorDoesAReliableQueuePairThatWaitsForIts) {
  const auto [c, d] = world.connect(0, 1);
  Buffer large = a.host->buffer(1 << 16);
  Buffer there = b.host->buffer(1 << 16);
  Buffer elsewhere = b.host->buffer(1 << 16);
  std::ranges::fill(large.bytes, std::byte{0x5a});
  const std::array sges = {large.sge(0, large.bytes.size())};
  a.host->engine.set_path_window(kDefaultPath, 4096);
  world.loop.pause(1, true);
  ASSERT_EQ(c.send(write_wr(1, sges, elsewhere.address(), elsewhere.key)), 0);
  ASSERT_EQ(a.send(write_wr(2, sges, there.address(), there.key)), 0);
  world.loop.run_until(kMillisecond);
  EXPECT_EQ(a.poll().size(), 1U);
  EXPECT_EQ(large.bytes, there.bytes);
  EXPECT_TRUE(c.poll().empty());
  EXPECT_NE(large.bytes, elsewhere.bytes);
}

/// Whoever has more to send than one call gives out.
TEST_F(UcTest, ItTakesTurnsWithReliableOnes) {
  const auto [c, d] = world.connect(0, 1);
  Buffer large = a.host->buffer(1 << 16);
  const std::array sges = {large.sge(0, large.bytes.size())};
  ASSERT_EQ(c.send(write_wr(1, sges, 0, 1)), 0);
  ASSERT_EQ(a.send(write_wr(2, sges, 0, 1)), 0);
  std::array<std::uint32_t, 2> sent{};
  std::array<TxDesc, 4> out;
  for (int call = 0; call < 6; ++call) {
    const std::size_t count = a.host->engine.next_tx(0, 1 << 20, out);
    for (std::size_t i = 0; i < count; ++i) ++sent[out[i].src_qpn == a.qp->qpn() ? 0 : 1];
  }
  EXPECT_EQ(sent, (std::array{12U, 12U}));
}

TEST_F(UcTest, WhatBringsAnAnswerCannotBePosted) {
  const std::array sges = {source.sge(0, 8)};
  EXPECT_EQ(a.send(read_wr(1, sges, target.address(), target.key)), EINVAL);
  EXPECT_EQ(a.send(fetch_add_wr(1, sges, target.address(), target.key, 1)), EINVAL);
  EXPECT_EQ(a.send(compare_swap_wr(1, sges, target.address(), target.key, 1, 2)), EINVAL);
  SendWr invalidating = send_wr(1, sges);
  invalidating.opcode = WrOpcode::kSendInvalidate;
  EXPECT_EQ(a.send(invalidating), EINVAL);
  EXPECT_FALSE(a.host->engine.has_tx());
}

TEST_F(UcTest, ALocalErrorStopsTheSendQueueOnly) {
  Sge bad = source.sge(0, 600);
  bad.lkey ^= 1;
  const std::array good_sges = {source.sge(0, 600)}, bad_sges = {bad};
  ASSERT_EQ(b.receive(1, {target.sge(0, 600)}), 0);
  ASSERT_EQ(a.send(send_wr(1, good_sges)), 0);
  ASSERT_EQ(a.send(send_wr(2, bad_sges)), 0);
  ASSERT_EQ(a.send(send_wr(3, good_sges)), 0);
  world.settle();
  const auto done = a.poll();
  ASSERT_EQ(done.size(), 3U);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kLocalProtectionError);
  EXPECT_EQ(done[2].status, WcStatus::kFlushError);
  EXPECT_EQ(a.qp->state(), QpState::kSqe);
  EXPECT_EQ(b.poll().size(), 1U);

  // It still receives, and sends again when told to.
  ASSERT_EQ(a.receive(9, {source.sge(4096, 10)}), 0);
  const std::array back = {target.sge(0, 10)};
  ASSERT_EQ(b.send(send_wr(4, back)), 0);
  world.settle();
  EXPECT_EQ(a.poll().size(), 1U);
  QpAttr attr;
  attr.state = QpState::kRts;
  ASSERT_EQ(a.host->engine.modify_qp(*a.qp, attr, kAttrState, 0), 0);
  ASSERT_EQ(b.receive(2, {target.sge(0, 600)}), 0);
  ASSERT_EQ(a.send(send_wr(5, good_sges)), 0);
  world.settle();
  EXPECT_EQ(a.poll().at(0).status, WcStatus::kSuccess);
  EXPECT_TRUE(std::ranges::any_of(b.poll(), [](const Completion& c) { return c.wr_id == 2; }));
}

TEST_F(UcTest, AReceiveBufferThatMayNotBeWrittenIsOurError) {
  Buffer readonly = b.host->buffer(1024, 0);
  ASSERT_EQ(b.receive(1, {readonly.sge(0, 1024)}), 0);
  const std::array sges = {source.sge(0, 600)};
  ASSERT_EQ(a.send(send_wr(1, sges)), 0);
  world.settle();
  const auto done = b.poll();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status, WcStatus::kLocalProtectionError);
  EXPECT_EQ(b.qp->state(), QpState::kErr);
  EXPECT_EQ(a.poll().at(0).status, WcStatus::kSuccess);
}

TEST_F(UcTest, MarksSlowItDown) {
  EngineConfig config;
  config.dcqcn = dcqcn_paper(40'000'000'000);
  VirtualWire narrow;
  narrow.port_ps_per_byte = 1600;  // a twentieth of what the senders have
  narrow.ecn_max_per_million = 1'000'000;
  World congested(2, narrow, config);
  const auto [from, to] = congested.connect(0, 1, uc());
  Buffer large = from.host->buffer(4 << 20);
  Buffer there = to.host->buffer(4 << 20);
  const std::array sges = {large.sge(0, large.bytes.size())};
  ASSERT_EQ(from.send(write_wr(1, sges, there.address(), there.key)), 0);
  congested.settle();
  EXPECT_GT(to.host->engine.counters().np_cnp_sent, 0U);
  EXPECT_GT(from.host->engine.counters().rp_cnp_handled, 0U);
  EXPECT_EQ(large.bytes, there.bytes);
}

// ---- any wire

/// Messages of all kinds, each known by its immediate or by its first bytes, over a wire that does what `wire` says.
void run_over(const VirtualWire& wire, bool may_repeat) {
  World world(2, wire);
  const auto [a, b] = world.connect(0, 1, uc());
  Random random(wire.seed);
  constexpr std::size_t kSlot = 2048, kSlots = 64;
  Buffer source = a.host->buffer(kSlot * kSlots), written = b.host->buffer(kSlot * kSlots),
         received = b.host->buffer(kSlot * kSlots);
  fill(source.bytes, wire.seed);
  std::array<std::size_t, kSlots> lengths{};
  std::array<bool, kSlots> is_send{};
  std::size_t posted_receives = 0;
  std::uint32_t last_seen = 0;
  std::size_t arrived = 0;
  const auto take = [&] {
    for (const Completion& c : b.poll()) {
      ASSERT_EQ(c.status, WcStatus::kSuccess);
      ASSERT_NE(c.flags & kWcWithImm, 0U);
      const std::uint32_t n = c.immediate;
      ASSERT_LT(n, kSlots);
      ASSERT_TRUE(may_repeat || n >= last_seen);  // in order, and once
      last_seen = n + 1;
      ++arrived;
      ASSERT_EQ(c.byte_len, lengths[n]);
      ASSERT_EQ(c.opcode, is_send[n] ? WcOpcode::kRecv : WcOpcode::kRecvWithImm);
      const std::byte* const at = is_send[n] ? &received.bytes[c.wr_id * kSlot] : &written.bytes[n * kSlot];
      ASSERT_TRUE(std::equal(at, at + lengths[n], &source.bytes[n * kSlot])) << n;
    }
  };
  const auto send = [&](std::uint32_t n) {
    lengths[n] = random.below(kSlot + 1);
    is_send[n] = random.below(2) == 0;
    const std::array sges = {source.sge(n * kSlot, lengths[n])};
    SendWr wr = write_imm_wr(n, sges, written.address(n * kSlot), written.key, n);
    if (is_send[n]) wr.opcode = WrOpcode::kSendImm;
    ASSERT_EQ(a.send(wr, world.loop.now()), 0);
  };
  for (std::uint32_t n = 0; n + 1 < kSlots; ++n) {
    // Each receive has a slot of its own, so that what is checked above is what its completion promised.
    while (posted_receives < kSlots && posted_receives <= n) {
      ASSERT_EQ(b.receive(posted_receives, {received.sge(posted_receives * kSlot, kSlot)}), 0);
      ++posted_receives;
    }
    send(n);
    if (random.below(3) == 0) world.settle();
    take();
  }
  world.settle();
  take();
  std::uint64_t next = 0;
  for (const Completion& c : a.poll()) {
    EXPECT_EQ(c.status, WcStatus::kSuccess);
    EXPECT_EQ(c.wr_id, next++);
  }
  EXPECT_EQ(next, kSlots - 1);
  for (std::size_t i = 0; i < written.bytes.size(); ++i) {
    ASSERT_TRUE(written.bytes[i] == std::byte{0} || written.bytes[i] == source.bytes[i]);  // never what was not sent
  }

  // Whatever happened: when the wire is whole again, so is the next message.
  world.loop.set_wire({});
  const std::size_t before = arrived;
  if (posted_receives == arrived) {
    ASSERT_EQ(b.receive(0, {received.sge(0, kSlot)}), 0);
  }
  send(kSlots - 1);
  world.settle();
  take();
  EXPECT_EQ(arrived, before + 1);
  EXPECT_EQ(a.qp->state(), QpState::kRts);
  EXPECT_EQ(b.qp->state(), QpState::kRts);
}

TEST(UcOverAnyWire, WholeMessagesOrNothing) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    VirtualWire wire;
    wire.seed = seed;
    wire.lose = static_cast<std::uint32_t>(seed % 7 * 20'000);
    wire.corrupt = static_cast<std::uint32_t>(seed % 5 * 20'000);
    run_over(wire, false);
    if (HasFatalFailure()) FAIL() << "seed " << seed;
  }
}

// A wire that doubles and reorders may bring a message of one packet twice or late: UC has no memory that could tell.
TEST(UcOverAnyWire, NeverBytesThatWereNotSent) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    VirtualWire wire;
    wire.seed = seed;
    wire.lose = wire.duplicate = wire.corrupt = wire.reorder = static_cast<std::uint32_t>(1 + seed % 4) * 20'000;
    run_over(wire, true);
    if (HasFatalFailure()) FAIL() << "seed " << seed;
  }
}

// ---- attributes

struct UcStep {
  QpState from;
  QpState to;
  std::uint32_t required;
  std::uint32_t optional;
};

constexpr std::uint32_t kUcInitBits = kAttrPkeyIndex | kAttrPort | kAttrAccessFlags;
constexpr std::uint32_t kRtrBits = kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
constexpr std::array kUcSteps = {
    UcStep{QpState::kReset, QpState::kInit, kUcInitBits, 0},
    UcStep{QpState::kInit, QpState::kInit, 0, kUcInitBits},
    UcStep{QpState::kInit, QpState::kRtr, kRtrBits, kAttrAccessFlags | kAttrPkeyIndex},
    UcStep{QpState::kRtr, QpState::kRts, kAttrSqPsn, kAttrCurState | kAttrAccessFlags},
    UcStep{QpState::kRts, QpState::kRts, 0, kAttrCurState | kAttrAccessFlags},
    UcStep{QpState::kRts, QpState::kSqd, 0, kAttrEnSqdAsync},
    UcStep{QpState::kSqd, QpState::kSqd, 0, kAttrAv | kAttrPkeyIndex | kAttrAccessFlags},
    UcStep{QpState::kSqd, QpState::kRts, 0, kAttrCurState | kAttrAccessFlags},
    UcStep{QpState::kSqe, QpState::kRts, 0, kAttrCurState | kAttrAccessFlags},
};

TEST(UcModifyRules, EveryMaskBitOfEveryStep) {
  for (const UcStep& step : kUcSteps) {
    for (std::uint32_t bit = 1; bit <= 20; ++bit) {
      const std::uint32_t flag = 1U << bit;
      QpAttr attr;
      attr.state = step.to;
      attr.cur_state = step.from;
      attr.has_grh = true;
      attr.av.remote = host_gid(1);
      QpState next = QpState::kErr;
      const std::uint32_t base = step.required | kAttrState;
      const bool legal = (step.required & flag) == 0 && (step.optional & flag) != 0;
      EXPECT_EQ(check_modify(step.from, attr, base ^ flag, next, QpType::kUc), legal ? 0 : EINVAL) << bit;
      EXPECT_EQ(check_modify(step.from, attr, base, next, QpType::kUc), 0);
      EXPECT_EQ(next, step.to);
    }
  }
}

}  // namespace
}  // namespace tensorwire::transport::test
