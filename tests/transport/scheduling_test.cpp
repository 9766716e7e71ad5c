// Who may send when: control first, turns of queue pairs and paths, windows, budgets, pauses.
#include <gtest/gtest.h>

#include <array>

#include "lab.hpp"
#include "transport/scheduler.hpp"

namespace tensorwire::transport::test {
namespace {

using wire::Opcode;

class Scheduling : public testing::Test {
 protected:
  Lab lab;
  Buffer source = lab.host.buffer(4 << 20);

  void post(QueuePair& qp, std::size_t length) {
    const std::array sges = {source.sge(0, length)};
    ASSERT_EQ(qp.post_send(write_wr(1, sges, 0, 1)), 0);
    lab.host.engine.doorbell(qp, lab.now);
  }
  QueuePair& another(std::uint32_t qpn, PathId path) {
    QueuePair& qp = lab.create(qpn);
    lab.path = path;
    lab.bring_up(qp);
    return qp;
  }
};

TEST_F(Scheduling, ControlHasTheLastPlaceOfACall) {
  post(*lab.end.qp, 6 * 1024);
  EXPECT_EQ(lab.pull(1).size(), 1U);
  std::uint32_t received = 0;
  for (const std::size_t places : {1U, 2U, 16U}) {
    SCOPED_TRACE(places);
    lab.receive(lab.request(Opcode::kRcWriteOnly, received++));
    std::array<TxDesc, 16> out;
    const std::size_t count = lab.host.engine.next_tx(lab.now, 1 << 20, std::span{out}.first(places));
    ASSERT_EQ(count, std::min<std::size_t>(places, 5));
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(out[i].headers.opcode == Opcode::kRcAck, i + 1 == count) << i;
  }
}

TEST_F(Scheduling, QueuePairsOfAPathTakeTurns) {
  QueuePair& second = another(0x43, lab.path);
  post(*lab.end.qp, 600 * 1024);
  post(second, 600 * 1024);
  lab.host.engine.set_path_window(lab.path, 1 << 30);
  const auto sent = lab.pull(2000);
  ASSERT_EQ(sent.size(), 1200U);
  constexpr std::size_t kTurn = kTurnBytes / 1024;
  for (std::size_t i = 0; i < 4 * kTurn; ++i) EXPECT_EQ(sent[i].src_qpn, (i / kTurn) % 2 == 0 ? Lab::kQpn : 0x43U) << i;
}

TEST_F(Scheduling, ATurnSurvivesSmallCalls) {
  QueuePair& second = another(0x43, lab.path);
  post(*lab.end.qp, 100 * 1024);
  post(second, 100 * 1024);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(lab.pull(1)[0].src_qpn, Lab::kQpn);
  EXPECT_EQ(lab.pull(1)[0].src_qpn, 0x43U);
}

TEST_F(Scheduling, OneCallServesOnePathAndPathsTakeTurns) {
  const PathId first = lab.path;
  const PathId other = lab.host.engine.create_path({});
  QueuePair& second = another(0x43, other);
  post(*lab.end.qp, 64 * 1024);
  post(second, 64 * 1024);
  std::array<TxDesc, 16> batch;
  for (int call = 0; call < 8; ++call) {
    ASSERT_EQ(lab.host.engine.next_tx(0, 1 << 20, batch), 16U);
    for (const TxDesc& desc : batch) EXPECT_EQ(desc.path, call % 2 == 0 ? first : other);
  }
  EXPECT_FALSE(lab.host.engine.has_tx());
  EXPECT_EQ(lab.host.engine.next_tx(0, 1 << 20, batch), 0U);
}

TEST_F(Scheduling, ABlockedPathHoldsNobodyUp) {
  const PathId first = lab.path;
  QueuePair& second = another(0x43, lab.host.engine.create_path({}));
  lab.host.engine.set_path_blocked(first, true);
  post(*lab.end.qp, 1024);
  EXPECT_FALSE(lab.host.engine.has_tx());
  lab.receive(lab.request(Opcode::kRcWriteOnly, 0));
  EXPECT_FALSE(lab.host.engine.has_tx());  // not even control
  post(second, 1024);
  const auto sent = lab.pull();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].src_qpn, 0x43U);
  lab.host.engine.set_path_blocked(first, false);
  EXPECT_EQ(lab.pull().size(), 2U);
}

TEST_F(Scheduling, BudgetCountsPayloadAndLetsOnePacketPass) {
  post(*lab.end.qp, 16 * 1024);
  std::array<TxDesc, 16> batch;
  EXPECT_EQ(lab.host.engine.next_tx(0, 1, batch), 1U);
  EXPECT_EQ(lab.host.engine.next_tx(0, 3 * 1024, batch), 3U);
  EXPECT_EQ(lab.host.engine.next_tx(0, 3 * 1024 + 1023, batch), 3U);
  EXPECT_EQ(lab.host.engine.next_tx(0, 1 << 20, std::span(batch).first(2)), 2U);
}

TEST_F(Scheduling, PathWindowBoundsWhatIsUnacknowledged) {
  lab.host.engine.set_path_window(lab.path, 8 * 1024);
  post(*lab.end.qp, 64 * 1024);
  auto sent = lab.pull();
  ASSERT_EQ(sent.size(), 8U);
  EXPECT_TRUE(sent[7].headers.ack_req);  // nothing more will leave without an answer
  EXPECT_FALSE(lab.host.engine.has_tx());
  lab.ack(2);
  EXPECT_EQ(lab.pull().size(), 3U);
  lab.host.engine.set_path_window(lab.path, 1);
  lab.ack(10);
  EXPECT_EQ(lab.pull().size(), 1U);  // one packet always passes
}

TEST_F(Scheduling, QueuePairWindowBoundsOneQueuePair) {
  EngineConfig config;
  config.qp_window_bytes = 4 * 1024;
  Lab narrow({}, config);
  Buffer from = narrow.host.buffer(1 << 16);
  const std::array sges = {from.sge(0, 1 << 16)};
  ASSERT_EQ(narrow.end.send(write_wr(1, sges, 0, 1)), 0);
  const auto sent = narrow.pull();
  ASSERT_EQ(sent.size(), 4U);
  EXPECT_TRUE(sent[3].headers.ack_req);
  narrow.ack(0);
  EXPECT_EQ(narrow.pull().size(), 1U);
}

TEST_F(Scheduling, SmallPacketsOccupyTheWindowToo) {
  lab.host.engine.set_path_window(lab.path, 4 * kMinPacketCharge);
  for (int i = 0; i < 10; ++i) post(*lab.end.qp, 0);
  EXPECT_EQ(lab.pull().size(), 4U);
}

// Packets without AckReq from many queue pairs must not fill a shared window and then wait for each other.
TEST_F(Scheduling, ManyQueuePairsOnOneSmallWindowNeverNeedATimeout) {
  World world;
  for (auto& host : world.hosts) host->engine.set_path_window(kDefaultPath, 24 * 1024);
  Buffer from = world.hosts[0]->buffer(200'000);
  Buffer to = world.hosts[1]->buffer(200'000);
  fill(from.bytes, 1);
  const std::array sges = {from.sge(0, 200'000)};
  std::vector<End> ends;
  for (int i = 0; i < 12; ++i) {
    Connection c;
    c.mtu = static_cast<MtuCode>(1 + i % 5);
    ends.push_back(world.connect(0, 1, c).first);
  }
  for (int round = 0; round < 4; ++round)
    for (const End& end : ends) ASSERT_EQ(end.send(write_wr(1, sges, to.address(), to.key)), 0);
  world.settle();
  EXPECT_EQ(world.hosts[0]->cq.size(), 48U);
  EXPECT_EQ(world.hosts[0]->engine.counters().local_ack_timeout_err, 0U);
  EXPECT_EQ(world.hosts[0]->engine.counters().retransmitted_packets, 0U);
}

class Pause : public testing::Test {
 protected:
  World world;
  std::pair<End, End> ends = world.connect(0, 1);
  Buffer from = world.hosts[0]->buffer(1 << 20);
  Buffer to = world.hosts[1]->buffer(1 << 20);

  void SetUp() override {
    fill(from.bytes, 1);
    const std::array sges = {from.sge(0, 1 << 20)};
    ASSERT_EQ(ends.first.send(write_wr(1, sges, to.address(), to.key)), 0);
    world.loop.run_until(20 * kMicrosecond);
    ASSERT_TRUE(ends.first.poll().empty());
  }
  void expect_done_without_repetition() {
    world.settle();
    const auto done = ends.first.poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, WcStatus::kSuccess);
    EXPECT_EQ(from.bytes, to.bytes);
    EXPECT_EQ(world.hosts[0]->engine.counters().retransmitted_packets, 0U);
    EXPECT_EQ(world.hosts[0]->engine.counters().local_ack_timeout_err, 0U);
  }
};

TEST_F(Pause, ASenderPausedForFiftyMillisecondsRepeatsNothing) {
  world.loop.pause(0, true);
  world.loop.run_until(50 * kMillisecond);
  EXPECT_TRUE(ends.first.poll().empty());
  world.loop.pause(0, false);
  expect_done_without_repetition();
}

TEST_F(Pause, ABlockedPathRepeatsNothing) {
  world.hosts[0]->engine.set_path_blocked(kDefaultPath, true);
  world.loop.run_until(50 * kMillisecond);
  world.hosts[0]->engine.set_path_blocked(kDefaultPath, false);
  expect_done_without_repetition();
}

TEST_F(Pause, AResponderPausedForLessThanTheTimeoutCostsNothing) {
  world.loop.pause(1, true);
  world.loop.run_until(world.loop.now() + 800 * kMicrosecond);
  world.loop.pause(1, false);
  expect_done_without_repetition();
}

TEST_F(Pause, AfterATimeoutAPausedSenderSpendsNoRetries) {
  world.loop.pause(1, true);  // no acknowledgement comes
  world.loop.run_until(world.loop.now() + kMillisecond / 2);
  world.loop.pause(0, true);  // and then nothing can be repeated either
  world.loop.run_until(world.loop.now() + 100 * kMillisecond);
  EXPECT_EQ(world.hosts[0]->engine.counters().local_ack_timeout_err, 1U);
  world.loop.pause(0, false);
  world.loop.pause(1, false);
  world.settle();
  const auto done = ends.first.poll();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(from.bytes, to.bytes);
}

}  // namespace
}  // namespace tensorwire::transport::test
