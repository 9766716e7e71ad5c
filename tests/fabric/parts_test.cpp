// The parts of the fabric, one by one.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "fabric/event_queue.hpp"
#include "fabric/port.hpp"
#include "fabric/shared_buffer.hpp"
#include "fabric/topology.hpp"

namespace tensorwire::fabric {
namespace {

// ---- the calendar queue against an ordered map

/// Delays from `shortest` to 1000 times that, now and then far ahead, now and then none, often the same.
void compare_with_a_map(std::uint64_t seed, std::uint32_t shortest, std::size_t ahead) {
  Random random(seed);
  EventQueue queue(ahead);
  std::map<std::pair<Ps, std::uint64_t>, std::uint32_t> expected;
  std::uint64_t order = 0;
  const auto push = [&](std::uint32_t number) {
    Ps delay = Ps{random.below(1000)} * shortest;
    if (random.chance(10'000)) delay *= 100'000;
    if (random.chance(50'000)) delay = 0;
    if (random.chance(200'000)) delay = 500 * Ps{shortest};
    queue.push(queue.now() + delay, EventKind::kActor, number);
    expected.emplace(std::pair{queue.now() + delay, order++}, number);
  };
  const auto pop = [&] {
    const auto next = expected.begin();
    const Event* const early = queue.pop(next->first.first - 1);
    EXPECT_EQ(early, nullptr);
    const Event* const event = queue.pop(kNever);
    ASSERT_NE(event, nullptr);
    ASSERT_EQ(event->target(), next->second) << "seed " << seed << ", " << expected.size() << " events";
    EXPECT_EQ(event->time, next->first.first);
    EXPECT_EQ(queue.now(), event->time);
    expected.erase(next);
  };
  for (std::uint32_t number = 0; number < 2000; ++number) push(number);
  for (int n = 0; n < 200'000; ++n) {
    const std::uint32_t number = expected.begin()->second;
    ASSERT_NO_FATAL_FAILURE(pop()) << "after " << n << " events";
    if (n % 50'000 == 49'999) shortest *= 30;  // another density: the width of the buckets follows
    push(number);
  }
  while (!expected.empty()) ASSERT_NO_FATAL_FAILURE(pop());
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.pop(kNever), nullptr);
}

TEST(EventQueue, GivesWhatAnOrderedMapGives) {
  for (const std::size_t ahead : {1U, 16U}) {
    compare_with_a_map(1, 1, ahead);
    compare_with_a_map(2, 1000, ahead);
    compare_with_a_map(3, 100'000, ahead);
  }
}

TEST(EventQueue, KnowsWhatComesNext) {
  EventQueue queue(16);
  for (std::uint32_t number = 0; number < 1000; ++number) queue.push(1000 - number, EventKind::kActor, number);
  ASSERT_NE(queue.pop(kNever), nullptr);
  for (std::size_t n = 0; n < 16; ++n) {
    ASSERT_NE(queue.ahead(n), nullptr) << n;
    EXPECT_EQ(queue.ahead(n)->target(), 998 - n);
  }
}

// ---- queues of packets

TEST(PacketQueue, KeepsTheOrderAndGivesBackItsChunks) {
  PacketChunks chunks;
  std::array<PacketQueue, 3> queues;
  std::array<std::deque<BodyId>, 3> expected;
  Random random(5);
  for (BodyId body = 0; body < 20'000; ++body) {
    const std::uint32_t at = random.below(3);
    Packet packet;
    packet.body = body;
    queues[at].push(chunks, packet);
    expected[at].push_back(body);
    for (std::size_t n = 0; n < 3; ++n) {
      if (expected[n].empty() || (expected[n].size() < 40 && random.below(2) == 0)) continue;
      std::deque<BodyId> seen;
      queues[n].for_each(chunks, [&](const Packet& one) { seen.push_back(one.body); });
      ASSERT_EQ(seen, expected[n]);
      ASSERT_EQ(queues[n].front(chunks).body, expected[n].front());
      ASSERT_EQ(queues[n].pop(chunks).body, expected[n].front());
      expected[n].pop_front();
      ASSERT_EQ(queues[n].empty(), expected[n].empty());
    }
  }
  EXPECT_LT(chunks.size(), 3U * (40 / PacketChunk::kPackets + 2));
}

// ---- the shared buffer

BufferConfig small_buffer() {
  BufferConfig config;
  config.bytes = 1'000'000;
  config.reserve_bytes = 0;
  config.headroom_bytes = 50'000;
  return config;
}

TEST(SharedBuffer, GreedyPortsSettleAtTheirShares) {  // alpha B / (1 + k alpha) each
  for (const int alpha_log2 : {-3, 0, 2}) {
    BufferConfig config = small_buffer();
    config.alpha_log2 = alpha_log2;
    constexpr std::uint32_t kPorts = 3;
    SharedBuffer buffer(config, kPorts);
    std::array<std::uint64_t, kPorts> held{};
    for (int round = 0; round < 10'000; ++round)
      for (std::uint32_t port = 0; port < kPorts; ++port)
        if (!buffer.wants_pause(port, 3) && buffer.take(port, 3, 100)) held[port] += 100;
    const double alpha = alpha_log2 >= 0 ? 1 << alpha_log2 : 1.0 / (1 << -alpha_log2);
    const double share = alpha * 850'000 / (1 + kPorts * alpha);
    for (const std::uint64_t bytes : held) EXPECT_NEAR(static_cast<double>(bytes), share, 0.01 * share);
  }
}

TEST(SharedBuffer, HeadroomIsForLosslessPrioritiesOnly) {
  SharedBuffer buffer(small_buffer(), 2);
  while (!buffer.wants_pause(0, 3)) ASSERT_TRUE(buffer.take(0, 3, 1000));
  std::uint64_t beyond = 0;
  while (buffer.take(0, 3, 1000)) beyond += 1000;
  EXPECT_NEAR(static_cast<double>(beyond), 50'000, 1000);
  while (buffer.take(1, 0, 1000)) {
  }
  EXPECT_FALSE(buffer.wants_pause(1, 0));
  EXPECT_LE(buffer.used(), small_buffer().bytes);
}

TEST(SharedBuffer, ResumesBelowTheThresholdAndForgetsNothing) {
  SharedBuffer buffer(small_buffer(), 2);
  Random random(7);
  std::deque<std::uint32_t> held;
  while (!buffer.wants_pause(0, 3)) {
    held.push_back(64 + random.below(4000));
    ASSERT_TRUE(buffer.take(0, 3, held.back()));
  }
  for (int n = 0; n < 5; ++n) {
    held.push_back(4160);
    ASSERT_TRUE(buffer.take(0, 3, held.back()));
  }
  EXPECT_FALSE(buffer.may_resume(0, 3));
  for (; !held.empty(); held.pop_front()) buffer.release(0, 3, held.front());
  EXPECT_TRUE(buffer.may_resume(0, 3));
  EXPECT_EQ(buffer.used(), 0U);
  EXPECT_EQ(buffer.threshold(), SharedBuffer::pool_bytes(small_buffer(), 2));
}

// ---- who goes next

TEST(Port, WeightsShareAndStrictGoesFirst) {
  Port port;
  PacketChunks chunks;
  SchedulerConfig scheduler;
  scheduler.weights[0] = 1;
  scheduler.weights[3] = 3;
  const auto add = [&](int priority) {
    Packet packet;
    packet.traffic_class = static_cast<std::uint8_t>(priority << 5);
    packet.wire_bytes = 1000;
    port.push(chunks, packet);
  };
  const auto next = [&] {
    Packet packet;
    EXPECT_TRUE(port.next(chunks, scheduler, packet));
    return packet.priority();
  };
  for (int n = 0; n < 400; ++n)
    for (const int priority : {0, 3}) add(priority);
  add(6);
  EXPECT_EQ(next(), 6);
  std::array<int, kPriorities> sent{};
  for (int n = 0; n < 400; ++n) ++sent[next()];
  EXPECT_NEAR(sent[3], 300, 15);
  port.paused = 1U << 3;
  for (int n = 0; n < 100; ++n) EXPECT_EQ(next(), 0);
}

// ---- topologies

TEST(Topology, AFatTreeHasAllShortestPaths) {
  const Routes routes = find_routes(fat_tree(4, {}));
  EXPECT_EQ(routes.leaf_of.size(), 16U);
  EXPECT_EQ(routes.towards(routes.leaf_of[0], routes.leaf_of[2]).count, 2U);   // the pod's spines
  EXPECT_EQ(routes.towards(routes.leaf_of[0], routes.leaf_of[15]).count, 2U);  // likewise, then cores
  EXPECT_EQ(routes.towards(8, routes.leaf_of[15]).count, 2U);
  for (PortId port = 0; port < routes.peer_of.size(); ++port) EXPECT_EQ(routes.peer_of[routes.peer_of[port]], port);
}

TEST(Topology, ARailHasItsOwnLeaves) {
  const Topology rails = rail_optimised(4, 8, 2, 3, {}, {});
  const Routes routes = find_routes(rails);
  EXPECT_EQ(rails.hosts, 32U);
  EXPECT_EQ(rails.switches.size(), 2U * 8 + 3);
  EXPECT_EQ(rails.switches[routes.leaf_of[3 * 8 + 5]], "rail 5 leaf 1");
  EXPECT_EQ(routes.leaf_of[0 * 8 + 5], routes.leaf_of[1 * 8 + 5]) << "one number, two nodes";
  EXPECT_NE(routes.leaf_of[0 * 8 + 5], routes.leaf_of[0 * 8 + 6]) << "one node, two numbers";
  EXPECT_EQ(routes.towards(routes.leaf_of[0], routes.leaf_of[31]).count, 3U);
}

TEST(Topology, WaysLeadAroundLinksThatAreDown) {
  const Topology topology = leaf_spine(2, 2, 1, {}, {});
  Routes routes = find_routes(topology);
  EXPECT_EQ(routes.towards(0, 1).count, 2U);
  std::vector<bool> down(topology.links.size());
  down[2] = true;  // leaf 0 to spine 0; the two before are hosts'
  find_ways_around(topology, down, routes);
  EXPECT_EQ(routes.towards(0, 1).count, 1U);
  EXPECT_EQ(routes.towards(1, 0).count, 1U);
  down[3] = true;
  find_ways_around(topology, down, routes);
  EXPECT_EQ(routes.towards(0, 1).count, 0U);
}

TEST(Topology, RefusesWhatIsNotConnected) {
  Topology two = single_switch(2, {});
  two.add_hosts(1);
  EXPECT_THROW((void)find_routes(two), Error);
  two.link_host(2, two.add_switch("island"), {});
  try {
    (void)find_routes(two);
    FAIL() << "an island was not noticed";
  } catch (const Error& error) {
    EXPECT_NE(std::string{error.what()}.find("island"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tensorwire::fabric
