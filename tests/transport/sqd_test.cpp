// SQD: what was begun is brought to its end and nothing else is begun; when all of it is complete, the attributes that
// SQD permits may change, and the queue goes on where it stood.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>

#include "lab.hpp"
#include "ud_world.hpp"

namespace tensorwire::transport::test {
namespace {

using wire::Opcode;

constexpr std::uint32_t kSqdMtu = 1024;

class SqdLab : public testing::Test {
 protected:
  Lab lab;
  Buffer buffer = lab.host.buffer(64 * 1024);

  int modify(QpState state, std::uint32_t mask, QpAttr attr = {}) {
    attr.state = state;
    return lab.host.engine.modify_qp(*lab.end.qp, attr, mask | kAttrState, lab.now, path);
  }
  int drain(bool notify = true) {
    QpAttr attr;
    attr.en_sqd_async_notify = notify;
    return modify(QpState::kSqd, kAttrEnSqdAsync, attr);
  }
  void write(std::uint64_t wr_id, std::size_t bytes) {
    const std::array sges = {buffer.sge(0, bytes)};
    ASSERT_EQ(lab.end.send(write_wr(wr_id, sges, 0x1000, 1)), 0);
  }
  [[nodiscard]] bool draining() const { return lab.end.qp->attributes().sq_draining; }
  [[nodiscard]] std::size_t events() const {
    std::size_t count = 0;
    for (const auto& [event, qpn] : lab.host.events.all) count += event == AsyncEvent::kSqDrained ? 1 : 0;
    return count;
  }

  PathId path = lab.path;
};

TEST_F(SqdLab, AnIdleQueueIsDrainedAtOnce) {
  ASSERT_EQ(drain(), 0);
  EXPECT_EQ(lab.end.qp->state(), QpState::kSqd);
  EXPECT_FALSE(draining());
  EXPECT_EQ(events(), 1U);
}

TEST_F(SqdLab, TheEventComesOnlyWhenAskedFor) {
  ASSERT_EQ(modify(QpState::kSqd, 0), 0);
  ASSERT_EQ(modify(QpState::kRts, 0), 0);
  ASSERT_EQ(drain(false), 0);
  EXPECT_EQ(events(), 0U);
  ASSERT_EQ(modify(QpState::kRts, 0), 0);
  ASSERT_EQ(drain(), 0);
  EXPECT_EQ(events(), 1U);
}

TEST_F(SqdLab, TheMessageUnderWayEndsAndTheNextOneWaits) {
  write(1, 3 * kSqdMtu);
  write(2, 10);
  ASSERT_EQ(lab.pull(1).size(), 1U);
  ASSERT_EQ(drain(), 0);
  EXPECT_TRUE(draining());
  const auto rest = lab.pull();
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_EQ(rest[1].headers.opcode, Opcode::kRcWriteLast);
  write(3, 10);  // posting goes on
  EXPECT_TRUE(lab.pull().empty());
  lab.ack(1);
  EXPECT_TRUE(draining());
  EXPECT_EQ(events(), 0U);
  lab.ack(2);
  EXPECT_FALSE(draining());
  EXPECT_EQ(events(), 1U);
  EXPECT_EQ(lab.end.poll().size(), 1U);
  EXPECT_FALSE(lab.host.engine.has_tx());
  EXPECT_EQ(lab.host.engine.next_deadline(), kNever);

  ASSERT_EQ(modify(QpState::kRts, 0), 0);
  const auto after = lab.pull();
  ASSERT_EQ(after.size(), 2U);
  EXPECT_EQ(after[0].headers.psn, lab.psn(3));
  lab.ack(4);
  EXPECT_EQ(lab.end.poll().size(), 2U);
  EXPECT_EQ(events(), 1U);
}

TEST_F(SqdLab, WhatIsLostMeanwhileIsSentAgain) {
  write(1, 3 * kSqdMtu);
  write(2, 10);
  lab.pull(3);
  ASSERT_EQ(drain(), 0);
  lab.nak(1);
  auto again = lab.pull();
  ASSERT_EQ(again.size(), 2U);
  EXPECT_TRUE(again[0].retransmission);
  lab.timer_at(lab.host.engine.next_deadline());
  again = lab.pull();
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(again[0].headers.psn, lab.psn(1));
  lab.rnr(1, 4);
  EXPECT_TRUE(lab.pull().empty());
  lab.timer_at(lab.host.engine.next_deadline());
  EXPECT_EQ(lab.pull().size(), 2U);
  lab.ack(2);
  EXPECT_EQ(events(), 1U);
}

TEST_F(SqdLab, AReadIsBegunWhenItsRequestHasLeft) {
  const std::array sges = {buffer.sge(0, 2 * kSqdMtu)};
  ASSERT_EQ(lab.end.send(read_wr(1, sges, 0x1000, 1)), 0);
  lab.pull();
  ASSERT_EQ(drain(), 0);
  lab.receive(Lab::response(Opcode::kRcReadResponseFirst, lab.psn(0)), kSqdMtu);
  EXPECT_TRUE(draining());
  lab.receive(Lab::response(Opcode::kRcReadResponseLast, lab.psn(1)), kSqdMtu);
  EXPECT_FALSE(draining());
  EXPECT_EQ(events(), 1U);
}

TEST_F(SqdLab, WhileItDrainsItCanOnlyBeGivenUp) {
  ASSERT_EQ(lab.end.receive(9), 0);
  write(1, 10);
  write(2, 10);
  lab.pull(1);
  ASSERT_EQ(drain(), 0);
  EXPECT_EQ(modify(QpState::kRts, 0), EINVAL);
  EXPECT_EQ(modify(QpState::kSqd, kAttrAccessFlags), EINVAL);
  EXPECT_TRUE(draining());
  ASSERT_EQ(modify(QpState::kErr, 0), 0);
  EXPECT_EQ(lab.end.poll().size(), 3U);
  EXPECT_EQ(events(), 0U);
  ASSERT_EQ(modify(QpState::kReset, 0), 0);
  EXPECT_FALSE(draining());
}

TEST_F(SqdLab, ResetIsPossibleToo) {
  write(1, 10);
  lab.pull();
  ASSERT_EQ(drain(), 0);
  ASSERT_EQ(modify(QpState::kReset, 0), 0);
  EXPECT_FALSE(lab.host.engine.has_tx());
}

TEST_F(SqdLab, AnErrorEndsTheDraining) {
  write(1, 10);
  lab.pull();
  ASSERT_EQ(drain(), 0);
  lab.nak(0, wire::NakCode::kRemoteAccess);
  EXPECT_EQ(lab.end.qp->state(), QpState::kErr);
  EXPECT_EQ(lab.end.poll().at(0).status, WcStatus::kRemoteAccessError);
  EXPECT_EQ(events(), 0U);
}

TEST_F(SqdLab, TheResponderGoesOn) {
  ASSERT_EQ(drain(), 0);
  ASSERT_EQ(lab.end.receive(1, {buffer.sge(0, 100)}), 0);
  lab.receive(lab.request(Opcode::kRcSendOnly, 0), 50);
  lab.expect_ack(0);
  EXPECT_EQ(lab.end.poll().size(), 1U);
  lab.receive(lab.read(1, buffer, 100));
  const auto replies = lab.pull();
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].headers.opcode, Opcode::kRcReadResponseOnly);
}

TEST_F(SqdLab, AnotherAddressAndAnotherPath) {
  write(1, 10);
  lab.pull();
  lab.ack(0);
  ASSERT_EQ(drain(), 0);
  lab.receive(lab.write(Opcode::kRcWriteOnly, 0, buffer, 10), 10);  // an acknowledgement is owed
  QpAttr attr;
  attr.has_grh = true;
  attr.av.local = lab.host.gid;
  attr.av.remote = host_gid(9);
  path = lab.host.engine.create_path({.window_bytes = 1 << 20, .whole_messages = true});
  ASSERT_EQ(modify(QpState::kSqd, kAttrAv, attr), 0);
  const auto owed = lab.pull();
  ASSERT_EQ(owed.size(), 1U);
  EXPECT_EQ(owed[0].desc.path, path);
  EXPECT_EQ(owed[0].desc.av->remote, host_gid(9));
  ASSERT_EQ(modify(QpState::kRts, 0), 0);
  write(2, 5000);
  const auto sent = lab.pull();
  ASSERT_EQ(sent.size(), 1U);  // the new path carries whole messages
  EXPECT_EQ(sent[0].desc.path, path);
  EXPECT_EQ(lab.ack(1).drop, DropReason::kWrongSource);
  lab.source = host_gid(9);
  EXPECT_EQ(lab.ack(1).drop, DropReason::kNone);
  EXPECT_EQ(lab.end.poll().size(), 2U);
}

TEST_F(SqdLab, OtherTimesAndLimits) {
  ASSERT_EQ(drain(), 0);
  QpAttr attr;
  attr.timeout = 10;
  attr.retry_cnt = 0;
  attr.rnr_retry = 0;
  attr.max_rd_atomic = 1;
  attr.max_dest_rd_atomic = 1;
  ASSERT_EQ(modify(QpState::kSqd,
                   kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrMaxQpRdAtomic | kAttrMaxDestRdAtomic, attr),
            0);
  ASSERT_EQ(modify(QpState::kRts, 0), 0);
  const std::array sges = {buffer.sge(0, 10)};
  for (std::uint64_t i = 0; i < 2; ++i) ASSERT_EQ(lab.end.send(read_wr(i, sges, 0x1000, 1)), 0);
  EXPECT_EQ(lab.pull().size(), 1U);  // one at a time
  EXPECT_EQ(lab.host.engine.next_deadline(), (4'096 * kNanosecond) << 10);
  // As responder: the second READ before the first is answered is one too many.
  lab.receive(lab.read(0, buffer, 10));
  lab.receive(lab.read(1, buffer, 10));
  EXPECT_EQ(lab.end.qp->state(), QpState::kErr);
}

TEST_F(SqdLab, FewerResponderResourcesForgetTheOldest) {
  for (std::uint32_t n = 0; n < 4; ++n) {
    lab.receive(lab.read(n, buffer, 10));
    lab.pull();
  }
  ASSERT_EQ(drain(), 0);
  QpAttr attr;
  attr.max_dest_rd_atomic = 2;
  ASSERT_EQ(modify(QpState::kSqd, kAttrMaxDestRdAtomic, attr), 0);
  lab.receive(lab.read(1, buffer, 10));  // duplicates: one is forgotten, one is not
  EXPECT_TRUE(lab.pull().empty());
  lab.receive(lab.read(2, buffer, 10));
  EXPECT_EQ(lab.pull().size(), 1U);
}

TEST(Sqd, UcBringsTheMessageUnderWayToItsEnd) {
  Connection c;
  c.type = QpType::kUc;
  Lab lab(c);
  Buffer buffer = lab.host.buffer(8192);
  const std::array sges = {buffer.sge(0, 3 * kSqdMtu)};
  for (std::uint64_t i = 0; i < 2; ++i) ASSERT_EQ(lab.end.send(send_wr(i, sges)), 0);
  lab.pull(1);
  QpAttr attr;
  attr.state = QpState::kSqd;
  attr.en_sqd_async_notify = true;
  Engine& engine = lab.host.engine;
  ASSERT_EQ(engine.modify_qp(*lab.end.qp, attr, kAttrState | kAttrEnSqdAsync, 0), 0);
  EXPECT_EQ(lab.pull(2).size(), 2U);
  EXPECT_TRUE(lab.end.qp->attributes().sq_draining);
  EXPECT_FALSE(lab.host.events.has(AsyncEvent::kSqDrained));
  EXPECT_TRUE(lab.pull().empty());
  EXPECT_FALSE(lab.end.qp->attributes().sq_draining);
  EXPECT_TRUE(lab.host.events.has(AsyncEvent::kSqDrained));
  EXPECT_EQ(lab.end.poll().size(), 1U);
  attr.state = QpState::kRts;
  ASSERT_EQ(engine.modify_qp(*lab.end.qp, attr, kAttrState, 0), 0);
  EXPECT_EQ(lab.pull().size(), 3U);
}

TEST(Sqd, UdWaitsForWhatIsWithTheLink) {
  UdWorld lanes;
  const End a = lanes.datagrams(0), b = lanes.datagrams(1);
  Buffer buffer = a.host->buffer(1024);
  const DatagramAddress to_b = UdWorld::address_of(a, b);
  const std::array sges = {buffer.sge(0, 10)};
  for (std::uint64_t i = 0; i < 2; ++i) ASSERT_EQ(a.send(UdWorld::datagram(i, to_b, b, sges)), 0);
  std::array<TxDesc, 1> one;
  Engine& engine = a.host->engine;
  ASSERT_EQ(engine.next_tx(0, 1 << 20, one), 1U);
  ASSERT_EQ(UdWorld::modify(a, QpState::kSqd, kAttrState), 0);
  EXPECT_TRUE(a.qp->attributes().sq_draining);
  EXPECT_EQ(UdWorld::modify(a, QpState::kRts, kAttrState), EINVAL);
  EXPECT_EQ(engine.next_tx(0, 1 << 20, one), 0U);
  EXPECT_FALSE(a.qp->attributes().sq_draining);
  ASSERT_EQ(UdWorld::modify(a, QpState::kSqd, kAttrState | kAttrQkey, kQkey + 1), 0);
  ASSERT_EQ(UdWorld::modify(a, QpState::kRts, kAttrState), 0);
  EXPECT_EQ(engine.next_tx(0, 1 << 20, one), 1U);
  EXPECT_EQ(a.qp->attributes().qkey, kQkey + 1);
}

// Traffic both ways, drained and taken up again at any moment: every byte arrives, in order, once.
TEST(Sqd, AtAnyMomentOverABadWire) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    VirtualWire wire;
    wire.seed = seed;
    wire.lose = wire.duplicate = wire.reorder = 30'000;
    World world(2, wire);
    const auto [a, b] = world.connect(0, 1);
    Random random(seed);
    Buffer source = a.host->buffer(64 * 4096), target = b.host->buffer(64 * 4096);
    fill(source.bytes, seed);
    std::uint64_t posted = 0, completed = 0, drained = 0;
    while (completed < 64) {
      if (posted < 64 && random.below(2) == 0) {
        const std::array sges = {source.sge(posted * 4096, 4096)};
        ASSERT_EQ(a.send(write_wr(posted, sges, target.address(posted * 4096), target.key), world.loop.now()), 0);
        ++posted;
      }
      QpAttr attr;
      attr.state = QpState::kSqd;
      attr.en_sqd_async_notify = true;
      if (a.qp->state() == QpState::kRts && random.below(3) == 0) {
        ASSERT_EQ(a.host->engine.modify_qp(*a.qp, attr, kAttrState | kAttrEnSqdAsync, world.loop.now()), 0);
        ++drained;
      } else if (a.qp->state() == QpState::kSqd && !a.qp->attributes().sq_draining) {
        attr.state = QpState::kRts;
        ASSERT_EQ(a.host->engine.modify_qp(*a.qp, attr, kAttrState, world.loop.now()), 0);
      }
      world.loop.run_until(world.loop.now() + static_cast<Ps>(random.below(20)) * kMicrosecond);
      for (const Completion& c : a.poll()) {
        ASSERT_EQ(c.status, WcStatus::kSuccess);
        ASSERT_EQ(c.wr_id, completed++);
      }
      ASSERT_LT(world.loop.now(), 10 * kSecond) << "seed " << seed;
    }
    EXPECT_EQ(source.bytes, target.bytes);
    EXPECT_GT(drained, 0U);
    world.settle();
    std::uint64_t told = 0;
    for (const auto& [event, qpn] : a.host->events.all) told += event == AsyncEvent::kSqDrained ? 1 : 0;
    EXPECT_EQ(told, drained);
  }
}

}  // namespace
}  // namespace tensorwire::transport::test
