// ibv_modify_qp's rules for RC: which attributes each transition needs and allows, which values are good, and that a
// refused call changes nothing.
#include "transport/attributes.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <functional>

#include "world.hpp"

namespace tensorwire::transport::test {
namespace {

class Modify : public testing::Test {
 protected:
  World world;
  End a{world.hosts[0].get(), &world.create_qp(*world.hosts[0])};
  End b{world.hosts[1].get(), &world.create_qp(*world.hosts[1])};
  QpAttr attr = World::attributes({}, b);

  int modify(QpState state, std::uint32_t mask) {
    attr.state = state;
    return a.host->engine.modify_qp(*a.qp, attr, mask, 0);
  }
  int go_to(QpState state) {
    if (state == QpState::kReset) return 0;
    if (state == QpState::kErr) return modify(QpState::kErr, kAttrState);
    if (modify(QpState::kInit, kInitMask) != 0) return 1;
    if (state == QpState::kInit) return 0;
    if (modify(QpState::kRtr, kRtrMask) != 0) return 2;
    if (state == QpState::kRtr) return 0;
    return modify(QpState::kRts, kRtsMask);
  }
};

struct Step {
  QpState from;
  QpState to;
  std::uint32_t required;
  std::uint32_t optional;
};

constexpr std::uint32_t kInitBits = kAttrPkeyIndex | kAttrPort | kAttrAccessFlags;
constexpr std::array kSteps = {
    Step{QpState::kReset, QpState::kInit, kInitBits, 0},
    Step{QpState::kInit, QpState::kInit, 0, kInitBits},
    Step{QpState::kInit, QpState::kRtr, kRtrMask & ~kAttrState, kAttrAccessFlags | kAttrPkeyIndex},
    Step{QpState::kRtr, QpState::kRts, kRtsMask & ~kAttrState, kAttrCurState | kAttrAccessFlags | kAttrMinRnrTimer},
    Step{QpState::kRts, QpState::kRts, 0, kAttrCurState | kAttrAccessFlags | kAttrMinRnrTimer},
    Step{QpState::kRts, QpState::kSqd, 0, kAttrEnSqdAsync},
    Step{QpState::kSqd, QpState::kSqd, 0,
         kInitBits | kAttrAv | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrMinRnrTimer | kAttrMaxQpRdAtomic |
             kAttrMaxDestRdAtomic},
    Step{QpState::kSqd, QpState::kRts, 0, kAttrCurState | kAttrAccessFlags | kAttrMinRnrTimer},
};

TEST(ModifyRules, EveryMaskBitOfEveryStep) {
  World world;
  const End peer{world.hosts[1].get(), &world.create_qp(*world.hosts[1])};
  for (const Step& step : kSteps) {
    for (std::uint32_t bit = 0; bit <= 20; ++bit) {
      const std::uint32_t flag = 1U << bit;
      QpAttr attr = World::attributes({}, peer);
      attr.state = step.to;
      attr.cur_state = step.from;
      QpState next = QpState::kErr;
      const std::uint32_t base = step.required | kAttrState;
      if (flag == kAttrState) {
        // Without the state bit the state stays, which takes the attributes of a step to itself.
        const bool legal = step.from == step.to || step.required == 0;
        EXPECT_EQ(check_modify(step.from, attr, base & ~flag, next), legal ? 0 : EINVAL);
      } else if ((step.required & flag) != 0) {
        EXPECT_EQ(check_modify(step.from, attr, base & ~flag, next), EINVAL) << bit;
      } else {
        EXPECT_EQ(check_modify(step.from, attr, base | flag, next), (step.optional & flag) != 0 ? 0 : EINVAL) << bit;
      }
    }
  }
}

TEST(ModifyRules, OnlyTheStepsOfTheTable) {
  World world;
  const End peer{world.hosts[1].get(), &world.create_qp(*world.hosts[1])};
  constexpr std::array kStates = {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts,
                                  QpState::kSqd,   QpState::kSqe,  QpState::kErr};
  for (const QpState from : kStates) {
    for (const QpState to : kStates) {
      std::uint32_t mask = kAttrState;
      bool legal = to == QpState::kErr || to == QpState::kReset;
      for (const Step& step : kSteps) {
        if (step.from != from || step.to != to) continue;
        legal = true;
        mask |= step.required;
      }
      QpAttr attr = World::attributes({}, peer);
      attr.state = to;
      QpState next = from;
      EXPECT_EQ(check_modify(from, attr, mask, next), legal ? 0 : EINVAL)
          << static_cast<int>(from) << "->" << static_cast<int>(to);
    }
  }
}

TEST_F(Modify, RtrWithoutGrhIsRefused) {
  ASSERT_EQ(go_to(QpState::kInit), 0);
  attr.has_grh = false;
  EXPECT_EQ(modify(QpState::kRtr, kRtrMask), EINVAL);
  EXPECT_EQ(a.qp->state(), QpState::kInit);
  EXPECT_EQ(a.qp->attributes().dest_qpn, 0U);
}

TEST_F(Modify, BadValuesAreRefusedAndChangeNothing) {
  using Spoil = std::function<void(QpAttr&)>;
  const std::array<std::pair<QpState, Spoil>, 13> cases = {{
      {QpState::kInit, [](QpAttr& q) { q.port = 2; }},
      {QpState::kInit, [](QpAttr& q) { q.pkey_index = 1; }},
      {QpState::kRtr, [](QpAttr& q) { q.path_mtu = static_cast<MtuCode>(0); }},
      {QpState::kRtr, [](QpAttr& q) { q.path_mtu = static_cast<MtuCode>(6); }},
      {QpState::kRtr, [](QpAttr& q) { q.dest_qpn = 1U << 24; }},
      {QpState::kRtr, [](QpAttr& q) { q.av.remote = {}; }},
      {QpState::kRtr, [](QpAttr& q) { q.min_rnr_timer = 32; }},
      {QpState::kRtr, [](QpAttr& q) { q.max_dest_rd_atomic = 17; }},
      {QpState::kRts, [](QpAttr& q) { q.timeout = 32; }},
      {QpState::kRts, [](QpAttr& q) { q.retry_cnt = 8; }},
      {QpState::kRts, [](QpAttr& q) { q.rnr_retry = 8; }},
      {QpState::kRts, [](QpAttr& q) { q.max_rd_atomic = 17; }},
      {QpState::kRts, [](QpAttr& q) { q.cur_state = QpState::kInit; }},
  }};
  for (const auto& [state, spoil] : cases) {
    ASSERT_EQ(modify(QpState::kReset, kAttrState), 0);
    const QpState before = static_cast<QpState>(static_cast<int>(state) - 1);
    ASSERT_EQ(go_to(before), 0);
    const QpAttr good = attr;
    const std::uint32_t mask = state == QpState::kInit  ? kInitMask
                               : state == QpState::kRtr ? kRtrMask
                                                        : (kRtsMask | kAttrCurState);
    attr.cur_state = before;
    spoil(attr);
    EXPECT_EQ(modify(state, mask), EINVAL);
    EXPECT_EQ(a.qp->state(), before);
    attr = good;
    attr.cur_state = before;
    EXPECT_EQ(modify(state, mask), 0);
  }
}

TEST_F(Modify, UnknownPathIsRefused) {
  ASSERT_EQ(go_to(QpState::kInit), 0);
  attr.state = QpState::kRtr;
  EXPECT_EQ(a.host->engine.modify_qp(*a.qp, attr, kRtrMask, 0, 1), EINVAL);
  EXPECT_EQ(a.qp->state(), QpState::kInit);
}

TEST_F(Modify, PostingFollowsTheState) {
  EXPECT_EQ(a.send(send_wr(1, {})), EINVAL);
  EXPECT_EQ(a.receive(1), EINVAL);
  ASSERT_EQ(modify(QpState::kInit, kInitMask), 0);
  EXPECT_EQ(a.send(send_wr(1, {})), EINVAL);
  EXPECT_EQ(a.receive(1), 0);
  ASSERT_EQ(modify(QpState::kRtr, kRtrMask), 0);
  EXPECT_EQ(a.send(send_wr(1, {})), EINVAL);
  ASSERT_EQ(modify(QpState::kRts, kRtsMask), 0);
  EXPECT_EQ(a.send(send_wr(2, {})), 0);

  ASSERT_EQ(modify(QpState::kErr, kAttrState), 0);
  auto done = a.poll();
  ASSERT_EQ(done.size(), 2U);  // send queue first
  EXPECT_EQ(done[0].wr_id, 2U);
  EXPECT_EQ(done[1].wr_id, 1U);
  for (const Completion& completion : done) EXPECT_EQ(completion.status, WcStatus::kFlushError);

  SendWr unsignaled = send_wr(3, {});
  unsignaled.signaled = false;
  EXPECT_EQ(a.receive(4), 0);
  EXPECT_EQ(a.send(unsignaled), 0);
  done = a.poll();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].wr_id, 3U);
  EXPECT_EQ(done[0].status, WcStatus::kFlushError);
  EXPECT_EQ(done[1].wr_id, 4U);
  EXPECT_FALSE(a.host->engine.has_tx());
}

TEST_F(Modify, ResetClearsTheRingsAndTheQueuePairLivesAgain) {
  ASSERT_EQ(go_to(QpState::kRts), 0);
  Buffer source = a.host->buffer(100'000);
  Buffer target = b.host->buffer(100'000);
  fill(source.bytes, 1);
  const std::array sges = {source.sge(0, 100'000)};
  for (int i = 0; i < 64; ++i) ASSERT_EQ(a.send(write_wr(1, sges, target.address(), target.key)), 0);
  for (int i = 0; i < 64; ++i) ASSERT_EQ(a.receive(1), 0);
  world.loop.run_until(3 * kMicrosecond);  // part of it under way; the peer is in RESET and drops it

  ASSERT_EQ(modify(QpState::kReset, kAttrState), 0);
  EXPECT_FALSE(a.host->engine.has_tx());
  EXPECT_EQ(a.host->engine.next_deadline(), kNever);
  EXPECT_TRUE(a.poll().empty());

  ASSERT_EQ(go_to(QpState::kRts), 0);
  World::bring_up(b, a, {});
  for (int i = 0; i < 64; ++i) ASSERT_EQ(a.receive(2), 0);
  ASSERT_EQ(a.send(write_wr(2, sges, target.address(), target.key)), 0);
  world.settle();
  const auto done = a.poll();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].wr_id, 2U);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(source.bytes, target.bytes);
}

TEST_F(Modify, EntropyPortIsChosenUnlessGiven) {
  ASSERT_EQ(go_to(QpState::kRtr), 0);
  EXPECT_GE(a.qp->attributes().av.udp_source_port, 0xc000);
  ASSERT_EQ(modify(QpState::kReset, kAttrState), 0);
  attr.av.udp_source_port = 0xc123;
  ASSERT_EQ(go_to(QpState::kRtr), 0);
  EXPECT_EQ(a.qp->attributes().av.udp_source_port, 0xc123);
  EXPECT_EQ(entropy_port(0x12345, 1, 2), 0xc000 | (0x2345 ^ 0x4));
  EXPECT_EQ(entropy_port(0, 0x11, 0x12), 0xc000 | 0x132);
}

TEST_F(Modify, CreateRefusesBadLimits) {
  Engine& engine = a.host->engine;
  QpInit good;
  good.qpn = 0x99;
  good.pd = a.host->pd;
  good.send_cq = good.recv_cq = &a.host->cq;
  const std::array<std::function<void(QpInit&)>, 9> spoilers = {[](QpInit& q) { q.qpn = 0; },
                                                                [](QpInit& q) { q.qpn = 0x11; },
                                                                [](QpInit& q) { q.qpn = 1U << 24; },
                                                                [](QpInit& q) { q.send_cq = nullptr; },
                                                                [](QpInit& q) { q.pd = 99; },
                                                                [](QpInit& q) { q.type = static_cast<QpType>(9); },
                                                                [](QpInit& q) { q.caps.max_send_wr = 16385; },
                                                                [](QpInit& q) { q.caps.max_recv_sge = 17; },
                                                                [](QpInit& q) { q.caps.max_inline_data = 513; }};
  for (const auto& spoil : spoilers) {
    QpInit bad = good;
    spoil(bad);
    EXPECT_THROW((void)engine.create_qp(bad), std::runtime_error);
  }
  QueuePair& qp = engine.create_qp(good);
  EXPECT_EQ(engine.find_qp(0x99), &qp);
  EXPECT_EQ(engine.destroy_pd(a.host->pd), EBUSY);
  engine.destroy_qp(qp);
  EXPECT_EQ(engine.find_qp(0x99), nullptr);
  const PdId pd = engine.create_pd();
  EXPECT_EQ(engine.destroy_pd(pd), 0);
  EXPECT_EQ(engine.destroy_pd(pd), EINVAL);
}

}  // namespace
}  // namespace tensorwire::transport::test
