// Each operation, without faults: bytes, completions, lengths around the MTU.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>

#include "world.hpp"

namespace tensorwire::transport::test {
namespace {

class Operations : public testing::Test {
 protected:
  World world;
  std::pair<End, End> ends = world.connect(0, 1);
  End& a = ends.first;
  End& b = ends.second;
  Buffer source = a.host->buffer(1 << 20);
  Buffer target = b.host->buffer(1 << 20);

  void SetUp() override { fill(source.bytes, 7); }

  void expect_equal(std::size_t from, std::size_t to, std::size_t length) {
    EXPECT_TRUE(
        std::equal(source.bytes.begin() + from, source.bytes.begin() + from + length, target.bytes.begin() + to));
  }
};

TEST_F(Operations, WriteOfEveryLengthAroundTheMtu) {
  for (const std::uint32_t length : {1U, 2U, 3U, 4U, 1023U, 1024U, 1025U, 2047U, 2048U, 2049U, 65536U, 262144U}) {
    std::fill(target.bytes.begin(), target.bytes.end(), std::byte{0});
    const std::array sges = {source.sge(5, length)};
    ASSERT_EQ(a.send(write_wr(length, sges, target.address(9), target.key)), 0);
    world.settle();
    const auto done = a.poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, WcStatus::kSuccess);
    EXPECT_EQ(done[0].opcode, WcOpcode::kWrite);
    EXPECT_EQ(done[0].wr_id, length);
    expect_equal(5, 9, length);
    EXPECT_EQ(target.bytes[8], std::byte{0});
    EXPECT_EQ(target.bytes[9 + length], std::byte{0});
    EXPECT_TRUE(b.poll().empty());
  }
  EXPECT_EQ(a.host->engine.counters().retransmitted_packets, 0U);
}

TEST_F(Operations, WriteWithImmediateTellsTheReceiver) {
  ASSERT_EQ(b.receive(77), 0);
  const std::array sges = {source.sge(0, 5000)};
  ASSERT_EQ(a.send(write_imm_wr(1, sges, target.address(), target.key, 0xdeadbeef)), 0);
  world.settle();
  const auto received = b.poll();
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0].wr_id, 77U);
  EXPECT_EQ(received[0].opcode, WcOpcode::kRecvWithImm);
  EXPECT_EQ(received[0].immediate, 0xdeadbeefU);
  EXPECT_EQ(received[0].flags, kWcWithImm);
  EXPECT_EQ(received[0].byte_len, 5000U);
  EXPECT_EQ(received[0].qp_num, b.qp->qpn());
  expect_equal(0, 0, 5000);
  EXPECT_EQ(a.poll().size(), 1U);
}

TEST_F(Operations, SendScattersOverTheReceiveList) {
  ASSERT_EQ(b.receive(5, {target.sge(0, 100), target.sge(2000, 0), target.sge(4000, 3000)}), 0);
  const std::array sges = {source.sge(0, 1500), source.sge(9000, 1), source.sge(8000, 700)};
  SendWr wr = send_wr(6, sges);
  wr.opcode = WrOpcode::kSendImm;
  wr.immediate = 42;
  ASSERT_EQ(a.send(wr), 0);
  world.settle();
  const auto received = b.poll();
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0].opcode, WcOpcode::kRecv);
  EXPECT_EQ(received[0].byte_len, 2201U);
  EXPECT_EQ(received[0].immediate, 42U);
  EXPECT_EQ(received[0].flags, kWcWithImm);
  expect_equal(0, 0, 100);
  expect_equal(100, 4000, 1400);
  expect_equal(9000, 5400, 1);
  expect_equal(8000, 5401, 700);
  ASSERT_EQ(a.poll().size(), 1U);
}

TEST_F(Operations, ZeroLengthAndZeroSges) {
  ASSERT_EQ(b.receive(1), 0);
  ASSERT_EQ(b.receive(2), 0);
  ASSERT_EQ(a.send(send_wr(10, {})), 0);
  ASSERT_EQ(a.send(write_imm_wr(11, {}, 0, 0, 3)), 0);  // neither address nor rkey is looked at
  ASSERT_EQ(a.send(write_wr(12, {}, 0, 0)), 0);
  const std::array empty = {Sge{0, 0, 0}};
  ASSERT_EQ(a.send(write_wr(13, empty, 0, 0)), 0);
  world.settle();
  EXPECT_EQ(a.poll().size(), 4U);
  const auto received = b.poll();
  ASSERT_EQ(received.size(), 2U);
  EXPECT_EQ(received[0].byte_len, 0U);
  EXPECT_EQ(received[1].immediate, 3U);
}

TEST_F(Operations, InlineBytesAreCopiedAtPosting) {
  std::array<std::byte, 200> bytes;
  fill(bytes, 3);
  const auto expected = bytes;
  const std::array sges = {Sge{reinterpret_cast<std::uintptr_t>(bytes.data()), 150, 0},
                           Sge{reinterpret_cast<std::uintptr_t>(bytes.data() + 150), 50, 0}};
  SendWr wr = write_wr(1, sges, target.address(), target.key);
  wr.inline_data = true;
  ASSERT_EQ(a.send(wr), 0);
  bytes.fill(std::byte{0});
  world.settle();
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), target.bytes.begin()));
}

TEST_F(Operations, SourceIsReadWhenThePacketLeaves) {
  const std::array sges = {source.sge(0, 100)};
  world.loop.pause(0, true);
  ASSERT_EQ(a.send(write_wr(1, sges, target.address(), target.key)), 0);
  fill(source.bytes, 1234);
  world.loop.pause(0, false);
  world.settle();
  expect_equal(0, 0, 100);
}

TEST_F(Operations, UnsignaledCompletesSilentlyAndFreesItsSlot) {
  const std::array sges = {source.sge(0, 64)};
  SendWr wr = write_wr(1, sges, target.address(), target.key);
  wr.signaled = false;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 64; ++i) ASSERT_EQ(a.send(wr), 0);
    ASSERT_EQ(a.send(wr), ENOMEM);
    world.settle();
  }
  EXPECT_TRUE(a.poll().empty());
}

TEST_F(Operations, PostingRefusesWhatDoesNotFit) {
  const std::array<Sge, 5> five = {};
  EXPECT_EQ(a.send(send_wr(1, five)), EINVAL);
  const std::array big = {source.sge(0, 257)};
  SendWr wr = send_wr(1, big);
  wr.inline_data = true;
  EXPECT_EQ(a.send(wr), EINVAL);
  const std::array huge = {Sge{0, 0x80000000U, 1}, Sge{0, 1, 1}};
  EXPECT_EQ(a.send(send_wr(1, huge)), EINVAL);
  wr = send_wr(1, {});
  wr.opcode = static_cast<WrOpcode>(10);
  EXPECT_EQ(a.send(wr), EOPNOTSUPP);
  wr = read_wr(1, {}, 0, 0);
  wr.inline_data = true;
  EXPECT_EQ(a.send(wr), EINVAL);
  const std::array seven = {source.sge(0, 7)};
  EXPECT_EQ(a.send(fetch_add_wr(1, seven, 0, 0, 1)), EINVAL);
  EXPECT_EQ(a.send(compare_swap_wr(1, {}, 0, 0, 1, 2)), EINVAL);
  for (int i = 0; i < 64; ++i) ASSERT_EQ(a.receive(1), 0);
  EXPECT_EQ(a.receive(1), ENOMEM);
}

TEST_F(Operations, EveryMtu) {
  for (const MtuCode mtu : {MtuCode::k256, MtuCode::k512, MtuCode::k1024, MtuCode::k2048, MtuCode::k4096}) {
    Connection c;
    c.mtu = mtu;
    auto [x, y] = world.connect(0, 1, c);
    std::fill(target.bytes.begin(), target.bytes.end(), std::byte{0});
    const std::uint64_t before = a.host->engine.counters().tx_packets;
    const std::array sges = {source.sge(0, 100'000)};
    ASSERT_EQ(x.send(write_wr(1, sges, target.address(), target.key)), 0);
    world.settle();
    ASSERT_EQ(x.poll().size(), 1U);
    expect_equal(0, 0, 100'000);
    EXPECT_EQ(a.host->engine.counters().tx_packets - before, (100'000 + mtu_bytes(mtu) - 1) / mtu_bytes(mtu));
  }
}

TEST_F(Operations, WholeMessagePathsDoNotSegment) {
  World whole(2, {}, {}, kMaxMessageBytes);
  const PathId path_a = whole.hosts[0]->engine.create_path({1 << 20, true});
  const PathId path_b = whole.hosts[1]->engine.create_path({1 << 20, true});
  auto [x, y] = whole.connect(0, 1, {}, {64, 64, 4, 4, 256}, path_a, path_b);
  Buffer from = x.host->buffer(3 << 20);
  Buffer to = y.host->buffer(3 << 20);
  fill(from.bytes, 5);
  const std::array sges = {from.sge(0, 3 << 20)};
  ASSERT_EQ(y.receive(1), 0);
  ASSERT_EQ(x.send(write_imm_wr(1, sges, to.address(), to.key, 1)), 0);
  whole.settle();
  EXPECT_EQ(x.host->engine.counters().tx_packets, 1U);
  EXPECT_EQ(y.poll().size(), 1U);
  EXPECT_EQ(x.poll().size(), 1U);
  EXPECT_EQ(from.bytes, to.bytes);
}

TEST_F(Operations, FirstPacketInRtrRaisesCommunicationEstablished) {
  End x{world.hosts[0].get(), &world.create_qp(*world.hosts[0])};
  End y{world.hosts[1].get(), &world.create_qp(*world.hosts[1])};
  World::bring_up(x, y, {});
  QpAttr attr = World::attributes({}, x);
  attr.state = QpState::kInit;
  ASSERT_EQ(y.host->engine.modify_qp(*y.qp, attr, kInitMask, 0), 0);
  attr.state = QpState::kRtr;
  ASSERT_EQ(y.host->engine.modify_qp(*y.qp, attr, kRtrMask, 0), 0);
  const std::array sges = {source.sge(0, 10)};
  ASSERT_EQ(x.send(write_wr(1, sges, target.address(), target.key)), 0);
  world.settle();
  EXPECT_EQ(x.poll().size(), 1U);
  EXPECT_TRUE(y.host->events.has(AsyncEvent::kCommEstablished));
}

}  // namespace
}  // namespace tensorwire::transport::test
