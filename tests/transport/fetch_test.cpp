// READ and atomics between two engines: bytes, completions, lengths around the MTU, limits, order, lost packets.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "world.hpp"

namespace tensorwire::transport::test {
namespace {

class Fetch : public testing::Test {
 protected:
  World world;
  std::pair<End, End> ends = world.connect(0, 1);
  End& a = ends.first;
  End& b = ends.second;
  Buffer landing = a.host->buffer(1 << 20);
  Buffer remote = b.host->buffer(1 << 20);

  void SetUp() override { fill(remote.bytes, 7); }

  void expect_equal(std::size_t from, std::size_t to, std::size_t length) {
    EXPECT_TRUE(
        std::equal(remote.bytes.begin() + from, remote.bytes.begin() + from + length, landing.bytes.begin() + to));
  }
  static void expect_completion(const std::vector<Completion>& done, WcStatus status) {
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, status);
  }
};

TEST_F(Fetch, ReadOfEveryLengthAroundTheMtu) {
  for (const std::uint32_t length : {0U, 1U, 3U, 4U, 1023U, 1024U, 1025U, 2047U, 2048U, 2049U, 65536U, 262144U}) {
    std::fill(landing.bytes.begin(), landing.bytes.end(), std::byte{0});
    const std::array sges = {landing.sge(9, length)};
    ASSERT_EQ(a.send(read_wr(length, sges, remote.address(5), remote.key)), 0);
    world.settle();
    const auto done = a.poll();
    expect_completion(done, WcStatus::kSuccess);
    EXPECT_EQ(done[0].opcode, WcOpcode::kRead);
    EXPECT_EQ(done[0].wr_id, length);
    EXPECT_EQ(done[0].byte_len, length);
    expect_equal(5, 9, length);
    EXPECT_EQ(landing.bytes[8], std::byte{0});
    EXPECT_EQ(landing.bytes[9 + length], std::byte{0});
    EXPECT_TRUE(b.poll().empty());
  }
  EXPECT_EQ(a.host->engine.counters().retransmitted_packets, 0U);
  EXPECT_EQ(b.host->engine.counters().rx_read_requests, 12U);
}

TEST_F(Fetch, ReadScattersAndNeedsNoKeysForNothing) {
  const std::array sges = {landing.sge(0, 100), landing.sge(2000, 0), landing.sge(4000, 3000)};
  ASSERT_EQ(a.send(read_wr(1, sges, remote.address(50), remote.key)), 0);
  ASSERT_EQ(a.send(read_wr(2, {}, 0, 0)), 0);
  world.settle();
  EXPECT_EQ(a.poll().size(), 2U);
  expect_equal(50, 0, 100);
  expect_equal(150, 4000, 3000);
}

TEST_F(Fetch, EveryMtuTakesAsManyResponsesAsThePsnsItCounts) {
  for (const MtuCode mtu : {MtuCode::k256, MtuCode::k512, MtuCode::k1024, MtuCode::k2048, MtuCode::k4096}) {
    Connection c;
    c.mtu = mtu;
    auto [x, y] = world.connect(0, 1, c);
    const std::uint64_t before = b.host->engine.counters().tx_packets;
    const std::array sges = {landing.sge(0, 100'000)};
    ASSERT_EQ(x.send(read_wr(1, sges, remote.address(), remote.key)), 0);
    ASSERT_EQ(x.send(read_wr(2, sges, remote.address(), remote.key)), 0);  // its PSN follows
    world.settle();
    ASSERT_EQ(x.poll().size(), 2U);
    expect_equal(0, 0, 100'000);
    EXPECT_EQ(b.host->engine.counters().tx_packets - before, 2 * ((100'000 + mtu_bytes(mtu) - 1) / mtu_bytes(mtu)));
  }
}

TEST_F(Fetch, FetchAddAndCompareSwapGiveTheOldValue) {
  remote.set_word(64, 1000);
  const std::array sges = {landing.sge(0, 8)};
  ASSERT_EQ(a.send(fetch_add_wr(1, sges, remote.address(64), remote.key, 5)), 0);
  world.settle();
  auto done = a.poll();
  expect_completion(done, WcStatus::kSuccess);
  EXPECT_EQ(done[0].opcode, WcOpcode::kFetchAdd);
  EXPECT_EQ(done[0].byte_len, 8U);
  EXPECT_EQ(landing.word(0), 1000U);
  EXPECT_EQ(remote.word(64), 1005U);

  const std::array split = {landing.sge(100, 3), landing.sge(200, 5)};
  ASSERT_EQ(a.send(compare_swap_wr(2, split, remote.address(64), remote.key, 1005, ~std::uint64_t{0})), 0);
  world.settle();
  done = a.poll();
  expect_completion(done, WcStatus::kSuccess);
  EXPECT_EQ(done[0].opcode, WcOpcode::kCompareSwap);
  EXPECT_EQ(remote.word(64), ~std::uint64_t{0});
  std::uint64_t old = 0;
  std::memcpy(&old, landing.bytes.data() + 100, 3);
  std::memcpy(reinterpret_cast<std::byte*>(&old) + 3, landing.bytes.data() + 200, 5);
  EXPECT_EQ(old, 1005U);

  ASSERT_EQ(a.send(compare_swap_wr(3, sges, remote.address(64), remote.key, 1005, 1)), 0);
  world.settle();
  EXPECT_EQ(remote.word(64), ~std::uint64_t{0});  // it was not 1005
  EXPECT_EQ(landing.word(0), ~std::uint64_t{0});
  ASSERT_EQ(a.send(fetch_add_wr(4, sges, remote.address(64), remote.key, 3)), 0);  // wraps
  world.settle();
  EXPECT_EQ(remote.word(64), 2U);
  EXPECT_EQ(b.host->engine.counters().rx_atomic_requests, 4U);
}

TEST_F(Fetch, WhatIsNotPermittedFailsTheRequestAndBothQueuePairs) {
  struct Case {
    const char* what;
    WrOpcode opcode;
    std::uint32_t access;  ///< of the region
    std::uint32_t qp_access;
    std::uint64_t offset;
    WcStatus status;
  };
  constexpr std::uint32_t kAll = kEveryAccess;
  const std::array cases = {
      Case{"READ without right of the region", WrOpcode::kRead, kAll & ~kAccessRemoteRead, kAll, 0,
           WcStatus::kRemoteAccessError},
      Case{"READ without right of the queue pair", WrOpcode::kRead, kAll, kAll & ~kAccessRemoteRead, 0,
           WcStatus::kRemoteAccessError},
      Case{"READ beyond the last byte", WrOpcode::kRead, kAll, kAll, 64 - 8 + 1, WcStatus::kRemoteAccessError},
      Case{"atomic without right of the region", WrOpcode::kFetchAdd, kAll & ~kAccessRemoteAtomic, kAll, 0,
           WcStatus::kRemoteAccessError},
      Case{"atomic without right of the queue pair", WrOpcode::kCompareSwap, kAll, kAll & ~kAccessRemoteAtomic, 0,
           WcStatus::kRemoteAccessError},
      Case{"atomic beyond the region", WrOpcode::kFetchAdd, kAll, kAll, 64, WcStatus::kRemoteAccessError},
      Case{"atomic across words", WrOpcode::kFetchAdd, kAll, kAll, 4, WcStatus::kRemoteInvalidRequestError},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Connection connection;
    connection.access = c.qp_access;
    auto [x, y] = world.connect(0, 1, connection);
    Buffer region = y.host->buffer(64, c.access);
    std::fill(landing.bytes.begin(), landing.bytes.end(), std::byte{0x55});
    const std::array sges = {landing.sge(0, 8)};
    SendWr wr = read_wr(1, sges, region.address(c.offset), region.key);
    wr.opcode = c.opcode;
    wr.compare_add = 0;
    wr.swap = 1;
    ASSERT_EQ(x.send(wr), 0);
    world.settle();
    expect_completion(x.poll(), c.status);
    EXPECT_EQ(x.qp->state(), QpState::kErr);
    EXPECT_EQ(y.qp->state(), QpState::kErr);
    EXPECT_EQ(landing.bytes[0], std::byte{0x55});
    EXPECT_TRUE(std::all_of(region.bytes.begin(), region.bytes.end(), [](std::byte v) { return v == std::byte{0}; }));
  }
}

TEST_F(Fetch, LocalMemoryThatMayNotBeWrittenIsFoundBeforeAnythingLeaves) {
  Buffer readonly = a.host->buffer(64, kAccessRemoteRead);
  const std::array sges = {readonly.sge(0, 8)};
  ASSERT_EQ(a.send(fetch_add_wr(1, sges, remote.address(64), remote.key, 1)), 0);
  const std::uint64_t before = remote.word(64);
  world.settle();
  expect_completion(a.poll(), WcStatus::kLocalProtectionError);
  EXPECT_EQ(remote.word(64), before);
  EXPECT_EQ(a.host->engine.counters().tx_packets, 0U);
}

TEST_F(Fetch, NoResourcesOnEitherSide) {
  Connection none;
  none.rd_atomic = 0;
  auto [x, y] = world.connect(0, 1, none);
  const std::array sges = {landing.sge(0, 8)};
  ASSERT_EQ(x.send(read_wr(1, sges, remote.address(), remote.key)), 0);
  world.settle();
  expect_completion(x.poll(), WcStatus::kLocalQpOperationError);

  // A requester that thinks it may, towards a responder that has none.
  const End p{world.hosts[0].get(), &world.create_qp(*world.hosts[0])};
  const End q{world.hosts[1].get(), &world.create_qp(*world.hosts[1])};
  World::bring_up(p, q, {});
  World::bring_up(q, p, none);
  ASSERT_EQ(p.send(read_wr(2, sges, remote.address(), remote.key)), 0);
  world.settle();
  expect_completion(p.poll(), WcStatus::kRemoteInvalidRequestError);
}

TEST_F(Fetch, NeverMoreOutstandingThanAgreed) {
  Connection c;
  c.rd_atomic = 3;
  auto [x, y] = world.connect(0, 1, c);
  const std::array sges = {landing.sge(0, 5000)};
  for (std::uint64_t i = 0; i < 40; ++i) ASSERT_EQ(x.send(read_wr(i, sges, remote.address(), remote.key)), 0);
  world.settle();
  EXPECT_EQ(x.poll().size(), 40U);  // one too many would have been an invalid request
  EXPECT_EQ(x.qp->state(), QpState::kRts);
}

TEST_F(Fetch, CompletionsKeepTheOrderOfPosting) {
  ASSERT_EQ(b.receive(1, {remote.sge(1 << 19, 100)}), 0);
  const std::array big = {landing.sge(0, 200'000)};
  const std::array small = {landing.sge(300'000, 10)};
  ASSERT_EQ(a.send(read_wr(1, big, remote.address(), remote.key)), 0);
  ASSERT_EQ(a.send(send_wr(2, small)), 0);
  ASSERT_EQ(a.send(write_wr(3, small, remote.address(1 << 18), remote.key)), 0);
  world.settle();
  const auto done = a.poll();
  ASSERT_EQ(done.size(), 3U);
  for (std::size_t i = 0; i < done.size(); ++i) EXPECT_EQ(done[i].wr_id, i + 1);
}

TEST_F(Fetch, AFencedSendCarriesWhatTheReadBrought) {
  ASSERT_EQ(b.receive(1, {remote.sge(1 << 19, 4000)}), 0);
  const std::array sges = {landing.sge(0, 4000)};
  ASSERT_EQ(a.send(read_wr(1, sges, remote.address(), remote.key)), 0);
  SendWr fenced = send_wr(2, sges);
  fenced.fence = true;
  ASSERT_EQ(a.send(fenced), 0);
  world.settle();
  ASSERT_EQ(a.poll().size(), 2U);
  EXPECT_TRUE(std::equal(remote.bytes.begin(), remote.bytes.begin() + 4000, remote.bytes.begin() + (1 << 19)));
}

TEST_F(Fetch, ReadsFromBothSidesThroughSmallWindowsDoNotWaitForEachOther) {
  EngineConfig config;
  config.qp_window_bytes = 2048;
  World small(2, {}, config);
  small.hosts[0]->engine.set_path_window(kDefaultPath, 4096);
  small.hosts[1]->engine.set_path_window(kDefaultPath, 4096);
  auto [x, y] = small.connect(0, 1);
  std::array<Buffer, 2> here = {x.host->buffer(1 << 18), x.host->buffer(1 << 18)};
  std::array<Buffer, 2> there = {y.host->buffer(1 << 18), y.host->buffer(1 << 18)};
  fill(here[0].bytes, 1);
  fill(there[0].bytes, 2);
  const std::array at_x = {here[1].sge(0, 1 << 18)};
  const std::array at_y = {there[1].sge(0, 1 << 18)};
  ASSERT_EQ(x.send(read_wr(1, at_x, there[0].address(), there[0].key)), 0);
  ASSERT_EQ(y.send(read_wr(1, at_y, here[0].address(), here[0].key)), 0);
  small.settle();
  EXPECT_EQ(x.poll().size(), 1U);
  EXPECT_EQ(y.poll().size(), 1U);
  EXPECT_EQ(here[1].bytes, there[0].bytes);
  EXPECT_EQ(there[1].bytes, here[0].bytes);
  EXPECT_EQ(x.host->engine.counters().retransmitted_packets, 0U);
}

TEST_F(Fetch, ReadsOnAWholeMessagePathAreStillCutByThePathMtu) {
  World whole(2, {}, {}, kMaxMessageBytes);
  const PathId path_a = whole.hosts[0]->engine.create_path({1 << 30, true});
  // The peer answers by packets: the two directions need not agree.
  auto [x, y] = whole.connect(0, 1, {}, {64, 64, 4, 4, 256}, path_a, kDefaultPath);
  Buffer from = y.host->buffer(3 << 20);
  Buffer to = x.host->buffer(3 << 20);
  fill(from.bytes, 5);
  const std::array sges = {to.sge(0, 3 << 20)};
  ASSERT_EQ(x.send(read_wr(1, sges, from.address(), from.key)), 0);
  ASSERT_EQ(x.send(write_wr(2, {sges.data(), 1}, from.address(), from.key)), 0);
  whole.settle();
  EXPECT_EQ(x.poll().size(), 2U);
  EXPECT_EQ(from.bytes, to.bytes);
  EXPECT_EQ(x.host->engine.counters().retransmitted_packets, 0U);
}

// Counters that many queue pairs of many hosts add to, over a wire that loses and duplicates: every old value is seen
// exactly once.
TEST_F(Fetch, AtomicsOfManyQueuePairsHappenExactlyOnce) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    VirtualWire wire;
    wire.seed = seed;
    wire.lose = 50'000;
    wire.duplicate = 50'000;
    wire.reorder = 20'000;
    World lossy(3, wire);
    Buffer counter = lossy.hosts[0]->buffer(8);
    constexpr std::size_t kEach = 40;
    std::vector<End> adders;
    std::vector<Buffer> old_values;
    for (std::size_t i = 0; i < 4; ++i) {
      adders.push_back(lossy.connect(1 + i % 2, 0).first);
      old_values.push_back(adders.back().host->buffer(kEach * 8));
      for (std::size_t n = 0; n < kEach; ++n) {
        const std::array sges = {old_values[i].sge(n * 8, 8)};
        ASSERT_EQ(adders[i].send(fetch_add_wr(n, sges, counter.address(), counter.key, 1)), 0);
      }
    }
    lossy.settle();
    std::set<std::uint64_t> seen;
    for (const Buffer& values : old_values)
      for (std::size_t n = 0; n < kEach; ++n) seen.insert(values.word(n * 8));
    EXPECT_EQ(counter.word(0), 4 * kEach) << seed;
    EXPECT_EQ(seen.size(), 4 * kEach) << seed;
    EXPECT_EQ(*seen.rbegin(), 4 * kEach - 1) << seed;
    EXPECT_EQ(lossy.hosts[0]->engine.counters().rx_atomic_requests, 4 * kEach);
    EXPECT_GT(lossy.hosts[0]->engine.counters().duplicate_request, 0U);
  }
}

}  // namespace
}  // namespace tensorwire::transport::test
