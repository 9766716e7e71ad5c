// The same configuration and seed give the same run: in this process, and with every compiler.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "fabric/collective_group.hpp"
#include "fabric/flow.hpp"

namespace tensorwire::fabric {
namespace {

/// A bit of everything: loss, ECMP, PFC, ECN, DCQCN, an incast beside an all-reduce.
std::uint64_t hash_of_run(std::uint64_t seed) {
  FabricConfig config;
  config.seed = seed;
  config.engine.dcqcn = transport::dcqcn_nic(100'000'000'000);
  config.switches.buffer.bytes = 2U << 20;
  config.switches.buffer.alpha_log2 = -3;
  config.switches.buffer.headroom_bytes = 80'000;
  config.switches.ecn = {true, 40'000, 160'000, 200'000};
  LinkConfig uplink;
  uplink.loss_per_million = 2000;
  Fabric fabric(leaf_spine(4, 2, 4, {}, uplink), config);
  std::vector<std::unique_ptr<Flow>> flows;
  for (HostId host = 4; host < 14; ++host) {
    FlowConfig flow;
    flow.from = host;
    flow.message_bytes = 300'000;
    flow.messages = 2;
    flow.connection.timeout = 8;
    flows.push_back(std::make_unique<Flow>(fabric, flow));
  }
  GroupConfig group;
  group.hosts = {1, 5, 9, 13};
  group.operations = 10;
  group.connection.timeout = 8;
  CollectiveGroup ranks(fabric, group);
  EXPECT_FALSE(fabric.run(kSecond));
  EXPECT_TRUE(ranks.finished()) << ranks.failure();
  for (const auto& flow : flows) EXPECT_TRUE(flow->finished());
  EXPECT_GT(fabric.counters().lost, 0U);
  EXPECT_GT(fabric.counters().marked, 0U);
  EXPECT_GT(fabric.counters().pauses_sent, 0U);
  return fabric.hash();
}

TEST(SameRun, InOneProcess) {
  EXPECT_EQ(hash_of_run(1), hash_of_run(1));
  EXPECT_NE(hash_of_run(1), hash_of_run(2));
}

// The number itself means nothing and changes with the model or the engine; that GCC's optimised program and clang's
// sanitized one, which both run this, agree on it does. Whoever changes behaviour writes down the new one.
TEST(SameRun, WithEveryCompiler) {
  EXPECT_EQ(hash_of_run(20261130), 0xd87b5efba517cc58U) << std::hex << hash_of_run(20261130);
}

}  // namespace
}  // namespace tensorwire::fabric
