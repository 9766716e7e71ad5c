// Shared receive queues: several queue pairs take their buffers from one, and its owner is told when to refill.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "lab.hpp"
#include "ud_world.hpp"

namespace tensorwire::transport::test {
namespace {

struct SrqEvents final : EventListener {
  std::vector<AsyncEvent> of_queue;
  std::vector<std::pair<AsyncEvent, std::uint32_t>> of_qp;
  void on_async_event(AsyncEvent event, QueuePair& qp) noexcept override { of_qp.emplace_back(event, qp.qpn()); }
  void on_srq_event(AsyncEvent event, SharedReceiveQueue&) noexcept override { of_queue.push_back(event); }
};

class SharedReceive : public testing::Test, protected UdWorld {
 protected:
  SharedReceiveQueue& srq = shared(1);
  std::pair<End, End> first = connect(0, 1, &srq);
  std::pair<End, End> second = connect(2, 1, &srq);
  Buffer source = world.hosts[0]->buffer(1 << 16);
  Buffer other_source = world.hosts[2]->buffer(1 << 16);
  Buffer target = world.hosts[1]->buffer(1 << 20);

  void SetUp() override {
    fill(source.bytes, 1);
    fill(other_source.bytes, 2);
  }

  int post(std::uint64_t wr_id, std::size_t offset, std::size_t bytes) {
    const std::array sges = {target.sge(offset, bytes)};
    return srq.post({wr_id, sges});
  }
  bool holds(const Buffer& from, std::size_t at, std::size_t bytes) const {
    return std::equal(from.bytes.begin(), from.bytes.begin() + bytes, target.bytes.begin() + at);
  }
};

TEST_F(SharedReceive, BuffersGoToWhoeverNeedsOne) {
  ASSERT_EQ(post(10, 0, 1000), 0);
  ASSERT_EQ(post(11, 1000, 1000), 0);
  ASSERT_EQ(post(12, 2000, 1000), 0);
  const std::array sges = {source.sge(0, 700)};
  const std::array other_sges = {other_source.sge(0, 900)};
  ASSERT_EQ(first.first.send(send_wr(1, sges)), 0);
  world.settle();
  ASSERT_EQ(second.first.send(send_wr(2, other_sges)), 0);
  world.settle();
  ASSERT_EQ(first.first.send(write_imm_wr(3, {}, 0, 0, 5)), 0);
  world.settle();
  const auto done = first.second.poll();
  ASSERT_EQ(done.size(), 3U);
  EXPECT_EQ(done[0].wr_id, 10U);
  EXPECT_EQ(done[0].qp_num, first.second.qp->qpn());
  EXPECT_EQ(done[1].wr_id, 11U);
  EXPECT_EQ(done[1].qp_num, second.second.qp->qpn());
  EXPECT_EQ(done[2].wr_id, 12U);
  EXPECT_EQ(done[2].opcode, WcOpcode::kRecvWithImm);
  EXPECT_TRUE(holds(source, 0, 700));
  EXPECT_TRUE(holds(other_source, 1000, 900));
}

// Two messages of several packets arrive interleaved: each has its own buffer from its first packet on.
TEST_F(SharedReceive, InterleavedMessagesKeepTheirBuffers) {
  for (std::uint64_t i = 0; i < 8; ++i) ASSERT_EQ(post(i, i << 16, 1 << 16), 0);
  const std::array sges = {source.sge(0, 50'000)};
  const std::array other_sges = {other_source.sge(0, 50'000)};
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(first.first.send(send_wr(1, sges)), 0);
    ASSERT_EQ(second.first.send(send_wr(2, other_sges)), 0);
  }
  world.settle();
  const auto done = first.second.poll();
  ASSERT_EQ(done.size(), 8U);
  std::array<bool, 8> seen{};
  for (const Completion& completion : done) {
    EXPECT_EQ(completion.status, WcStatus::kSuccess);
    ASSERT_LT(completion.wr_id, 8U);
    EXPECT_FALSE(std::exchange(seen[completion.wr_id], true));
    const Buffer& from = completion.qp_num == first.second.qp->qpn() ? source : other_source;
    EXPECT_TRUE(holds(from, completion.wr_id << 16, 50'000)) << completion.wr_id;
  }
}

TEST_F(SharedReceive, EmptyIsNotReadyAndTheSenderComesAgain) {
  const std::array sges = {source.sge(0, 3000)};
  ASSERT_EQ(first.first.send(send_wr(1, sges)), 0);
  world.loop.run_until(20 * kMicrosecond);
  EXPECT_GE(first.first.host->engine.counters().rnr_nak_retry_err, 1U);
  ASSERT_EQ(post(1, 0, 3000), 0);
  world.settle();
  EXPECT_EQ(first.first.poll().size(), 1U);
  EXPECT_EQ(first.second.poll().size(), 1U);
  EXPECT_TRUE(holds(source, 0, 3000));
}

TEST_F(SharedReceive, DatagramsTakeFromItToo) {
  const End a = datagrams(0);
  const End b = datagrams(1, kQkey, &srq);
  const DatagramAddress to_b = address_of(a, b);
  ASSERT_EQ(post(5, 0, 500), 0);
  const std::array sges = {source.sge(0, 100)};
  ASSERT_EQ(a.send(datagram(1, to_b, b, sges)), 0);
  ASSERT_EQ(a.send(datagram(2, to_b, b, sges)), 0);  // dropped: nothing left
  world.settle();
  const auto done = b.poll();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].wr_id, 5U);
  EXPECT_TRUE(holds(source, kGrh, 100));
  EXPECT_EQ(b.host->engine.counters().out_of_buffer, 1U);
}

TEST_F(SharedReceive, TheQueuesOwnDomainGuardsItsBuffers) {
  Host& host = *world.hosts[1];
  const PdId other_pd = host.engine.create_pd();
  SharedReceiveQueue& other = host.engine.create_srq({.pd = other_pd, .max_wr = 4, .max_sge = 1, .user = nullptr});
  const auto [x, y] = connect(0, 1, &other);
  const std::uint32_t key =
      host.engine.memory()
          .add({target.address(), 4096, target.address(), kAccessLocalWrite, 0, other_pd, &host.memory})
          .key;
  const std::array good = {Sge{target.address(), 4096, key}};
  const std::array bad = {target.sge(0, 4096)};  // of the queue pair's domain
  ASSERT_EQ(other.post({1, good}), 0);
  ASSERT_EQ(other.post({2, bad}), 0);
  const std::array sges = {source.sge(0, 100)};
  ASSERT_EQ(x.send(send_wr(1, sges)), 0);
  ASSERT_EQ(x.send(send_wr(2, sges)), 0);
  world.settle();
  const auto done = y.poll();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kLocalProtectionError);
  EXPECT_EQ(y.qp->state(), QpState::kErr);
}

TEST_F(SharedReceive, PostingKnowsItsLimits) {
  const std::array<Sge, 5> five{};
  EXPECT_EQ(srq.post({1, five}), EINVAL);
  for (int i = 0; i < 16; ++i) ASSERT_EQ(post(1, 0, 8), 0);
  EXPECT_EQ(post(1, 0, 8), ENOMEM);
  EXPECT_EQ(first.second.receive(1), EINVAL);  // a queue pair on it has no queue of its own
}

TEST_F(SharedReceive, LivesAsLongAsItsQueuePairs) {
  Engine& engine = world.hosts[1]->engine;
  EXPECT_EQ(engine.destroy_srq(srq), EBUSY);
  engine.destroy_qp(*first.second.qp);
  EXPECT_EQ(engine.destroy_srq(srq), EBUSY);
  engine.destroy_qp(*second.second.qp);
  engine.memory().remove(target.key);
  EXPECT_EQ(engine.destroy_pd(world.hosts[1]->pd), EBUSY);  // the queue is of it
  EXPECT_EQ(engine.destroy_srq(srq), 0);
  EXPECT_EQ(engine.destroy_pd(world.hosts[1]->pd), 0);
}

TEST_F(SharedReceive, CreateRefusesBadLimits) {
  Engine& engine = world.hosts[1]->engine;
  const PdId pd = world.hosts[1]->pd;
  for (const SrqInit& bad : {SrqInit{99, 4, 1, nullptr}, SrqInit{pd, 16385, 1, nullptr}, SrqInit{pd, 4, 17, nullptr}}) {
    EXPECT_THROW((void)engine.create_srq(bad), std::runtime_error);
  }
}

// A queue pair that ends gives back nothing: the buffer of its message under way is flushed, the others stay.
TEST_F(SharedReceive, ErrorFlushesTheMessageUnderWayAndTellsTheLast) {
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(post(i, i << 16, 1 << 16), 0);
  const std::array sges = {source.sge(0, 60'000)};
  ASSERT_EQ(first.first.send(send_wr(1, sges)), 0);
  world.loop.run_until(4 * kMicrosecond);  // some packets have arrived
  QpAttr attr;
  attr.state = QpState::kErr;
  Engine& engine = world.hosts[1]->engine;
  ASSERT_EQ(engine.modify_qp(*first.second.qp, attr, kAttrState, world.loop.now()), 0);
  const auto done = first.second.poll();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status, WcStatus::kFlushError);
  EXPECT_EQ(done[0].wr_id, 0U);
  EXPECT_EQ(srq.ring().size(), 3U);
  const auto& events = world.hosts[1]->events.all;
  const auto last = [&] {
    return std::ranges::count(events, std::pair{AsyncEvent::kLastWqeReached, first.second.qp->qpn()});
  };
  EXPECT_EQ(last(), 1);
  ASSERT_EQ(engine.modify_qp(*first.second.qp, attr, kAttrState, world.loop.now()), 0);
  EXPECT_EQ(last(), 1);  // once for each way into the error state
  EXPECT_EQ(second.second.qp->state(), QpState::kRts);
}

class SharedLimit : public testing::Test {
 protected:
  SrqEvents events;
  Engine engine{EngineConfig{}, &events};
  SharedReceiveQueue& srq = engine.create_srq({.pd = engine.create_pd(), .max_wr = 8, .max_sge = 1, .user = nullptr});

  void post(int count) {
    for (int i = 0; i < count; ++i) ASSERT_EQ(srq.post({1, {}}), 0);
  }
};

TEST_F(SharedLimit, IsToldOnceUntilArmedAnew) {
  post(8);
  EXPECT_EQ(srq.arm(9), EINVAL);
  ASSERT_EQ(srq.arm(6), 0);
  EXPECT_EQ(srq.limit(), 6U);
  srq.pop();
  srq.pop();
  EXPECT_TRUE(events.of_queue.empty());  // 6 left: not fewer
  srq.pop();
  ASSERT_EQ(events.of_queue.size(), 1U);
  EXPECT_EQ(events.of_queue[0], AsyncEvent::kSrqLimitReached);
  EXPECT_EQ(srq.limit(), 0U);
  srq.pop();
  EXPECT_EQ(events.of_queue.size(), 1U);
  ASSERT_EQ(srq.arm(4), 0);
  srq.pop();
  EXPECT_EQ(events.of_queue.size(), 2U);
}

TEST_F(SharedLimit, IsToldAtOnceWhereItIsReached) {
  post(2);
  ASSERT_EQ(srq.arm(3), 0);
  EXPECT_EQ(events.of_queue.size(), 1U);
  ASSERT_EQ(srq.arm(2), 0);
  ASSERT_EQ(srq.arm(0), 0);  // disarmed
  srq.pop();
  srq.pop();
  EXPECT_EQ(events.of_queue.size(), 1U);
}

}  // namespace
}  // namespace tensorwire::transport::test
