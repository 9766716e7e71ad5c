// The fabric against what can be computed with a pencil.
#include <gtest/gtest.h>
#include <malloc.h>

#include "base/error.hpp"
#include "fabric/cluster.hpp"
#include "fabric/collective_group.hpp"
#include "fabric/flow.hpp"
#include "fabric/simulation.hpp"

namespace tensorwire::fabric {
namespace {

/// Bytes on the wire of a message, all packets.
std::uint64_t wire_bytes(std::uint32_t message, std::uint32_t mtu) {
  const std::uint32_t packets = transport::packets_of_message(message, mtu);
  return message + packets * 82ULL + 16;
}

// Published: 127 x 245 x 4160 B = 10355.1 us for packets of 4096 + 64 bytes (htsim: 10363.4). Here a packet has 82
// bytes around its payload, and the first one of a message a RETH of 16.
TEST(Incast, TakesTheTimeThatItsBytesTake) {
  constexpr std::uint32_t kSenders = 127;
  constexpr std::uint32_t kBytes = 245 * 4096;
  FabricConfig config;
  config.engine.qp_window_bytes = 1U << 30;
  config.engine.ack_coalesce = config.engine.ack_request_every = 1;
  Fabric fabric(single_switch(kSenders + 1, {}), config);
  std::vector<std::unique_ptr<Flow>> flows;
  for (HostId host = 0; host < kSenders; ++host)
    flows.push_back(std::make_unique<Flow>(fabric, FlowConfig{.from = host, .to = kSenders, .message_bytes = kBytes}));
  EXPECT_FALSE(fabric.run(kSecond));
  Ps last = 0;
  for (const auto& flow : flows) {
    ASSERT_TRUE(flow->finished());
    last = std::max(last, flow->finished_at());
  }
  const Ps bottleneck = static_cast<Ps>(kSenders * wire_bytes(kBytes, 4096)) * 80;
  EXPECT_NEAR(static_cast<double>(last), static_cast<double>(bottleneck), static_cast<double>(5 * kMicrosecond));
  EXPECT_GE(last, bottleneck);
  EXPECT_EQ(fabric.counters().dropped, 0U);
  EXPECT_GT(fabric.counters().pauses_sent, 0U);
}

// ---- all-reduces on an idle fabric

constexpr Ps kPcie = 500 * kNanosecond;  // each way
constexpr Ps kCable = 200 * kNanosecond;

struct Line {
  const char* name;
  Ps ps_per_byte;
};
constexpr Line kLines[] = {{"400G", 20}, {"100G", 80}};

/// One message's time beside its bytes: PCIe at both ends, two cables, one more hop of a packet of `packet` bytes.
Ps alpha(Ps ps_per_byte, std::uint32_t packet) {
  return 2 * kPcie + 2 * kCable + static_cast<Ps>(std::min(packet, 4096U) + 82) * ps_per_byte;
}

Ps all_reduce(std::uint32_t ranks, collective::Algorithm algorithm, Ps ps_per_byte) {
  FabricConfig config;
  config.hosts.post_delay = config.hosts.completion_delay = kPcie;
  LinkConfig link;
  link.ps_per_byte = ps_per_byte;
  link.delay = kCable;
  Fabric fabric(single_switch(ranks, link), config);
  GroupConfig group;
  for (HostId host = 0; host < ranks; ++host) group.hosts.push_back(host);
  group.algorithm = algorithm;
  group.operations = 4;
  group.compute = 20 * kMicrosecond;
  CollectiveGroup all(fabric, group);
  fabric.run(kSecond);
  EXPECT_EQ(all.failure(), "");
  EXPECT_TRUE(all.finished());
  const std::vector<Ps> times = all.latencies();
  return times.empty() ? 0 : times.back();
}

void expect_within_2_percent(Ps measured, Ps closed_form, const char* line) {
  EXPECT_NEAR(static_cast<double>(measured), static_cast<double>(closed_form), 0.02 * static_cast<double>(closed_form))
      << line;
}

constexpr std::uint32_t kTensor = 256 * 1024;
constexpr std::uint32_t kRanks = 8;

TEST(AllReduce, TwoShotIsTwiceAlphaAndSevenChunks) {
  for (const Line& line : kLines) {
    const std::uint32_t chunk = kTensor / kRanks;
    const Ps phase =
        alpha(line.ps_per_byte, chunk) + static_cast<Ps>((kRanks - 1) * wire_bytes(chunk, 4096)) * line.ps_per_byte;
    expect_within_2_percent(all_reduce(kRanks, collective::Algorithm::kTwoShot, line.ps_per_byte), 2 * phase,
                            line.name);
  }
}

TEST(AllReduce, OneShotIsAlphaAndSevenTensors) {
  for (const Line& line : kLines) {
    const Ps time =
        alpha(line.ps_per_byte, kTensor) + static_cast<Ps>((kRanks - 1) * wire_bytes(kTensor, 4096)) * line.ps_per_byte;
    expect_within_2_percent(all_reduce(kRanks, collective::Algorithm::kOneShot, line.ps_per_byte), time, line.name);
  }
}

TEST(AllReduce, RingIsFourteenHops) {
  for (const Line& line : kLines) {
    const std::uint32_t chunk = kTensor / kRanks;
    const Ps hop = alpha(line.ps_per_byte, chunk) + static_cast<Ps>(wire_bytes(chunk, 4096)) * line.ps_per_byte;
    expect_within_2_percent(all_reduce(kRanks, collective::Algorithm::kRing, line.ps_per_byte), 2 * (kRanks - 1) * hop,
                            line.name);
  }
}

// Every rank has a queue pair with every other; a ring uses two of them.
TEST(AllReduce, RingOf128Ranks) {
  const Ps took = all_reduce(128, collective::Algorithm::kRing, 20);
  const Ps hop = alpha(20, kTensor / 128) + static_cast<Ps>(wire_bytes(kTensor / 128, 4096)) * 20;
  expect_within_2_percent(took, 2 * 127 * hop, "400G");
}

// ---- planning: eight nodes at 400 Gb/s, 256 KiB, alpha 2 us. Floor: 2 (alpha + 7 chunks' wire time) = 13.36 us.

double planned_us(const Cluster& cluster) {
  Simulation simulation(scenario_of(cluster));
  while (simulation.run(kMillisecond)) {
  }
  EXPECT_EQ(simulation.report().failure, "");
  return simulation.report().p50_us;
}

TEST(Planning, EightNodesAtTheFloorAndWithTheirHosts) {
  constexpr double kFloor = 13.36;
  Cluster cluster;
  cluster.shape = ClusterShape::kSingleSwitch;
  const double fabric_only = planned_us(cluster);
  EXPECT_GE(fabric_only, 0.99 * kFloor);
  EXPECT_LE(fabric_only, 1.05 * kFloor);
  cluster.host_loop = 2500 * kNanosecond;
  cluster.post_cost = 100 * kNanosecond;
  EXPECT_NEAR(planned_us(cluster), fabric_only + 5 + 0.2, 0.2) << "the first of each phase's posts delays all";
}

TEST(Planning, EveryShapeRunsAndKeepsGroupsApart) {
  for (const ClusterShape shape : kClusterShapes) {
    Cluster cluster;
    cluster.gpus = 32;
    cluster.shape = shape;
    cluster.hosts_per_leaf = 2;
    cluster.operations = 1;
    EXPECT_GT(planned_us(cluster), 13) << name_of(shape);
    cluster.gpus = 31;
    EXPECT_THROW((void)scenario_of(cluster), Error);
  }
}

TEST(Memory, AnIdleQueuePairTakesLessThan2KiB) {
#if defined(TENSORWIRE_ASAN) || defined(TENSORWIRE_TSAN)
  GTEST_SKIP() << "a sanitizer's heap is not the program's";
#endif
  constexpr std::size_t kPairs = 2000;
  FabricConfig config;
  config.engine.dcqcn.enabled = true;
  Fabric fabric(single_switch(2, {}), config);
  ConnectionConfig connection;
  connection.send_depth = connection.receive_depth = 1024;
  const std::size_t before = mallinfo2().uordblks;
  for (std::size_t n = 0; n < kPairs; ++n) (void)fabric.connect(0, 1, connection, nullptr, nullptr);
  EXPECT_LT((mallinfo2().uordblks - before) / (2 * kPairs), 2048U);
}

TEST(AllReduce, EveryPlanThatCanRuns) {
  for (const auto algorithm : {collective::Algorithm::kTwoShotWindow, collective::Algorithm::kHierarchical})
    EXPECT_GT(all_reduce(4, algorithm, 20), 0) << name_of(algorithm);
}

}  // namespace
}  // namespace tensorwire::fabric
