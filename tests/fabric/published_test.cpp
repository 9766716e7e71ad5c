// The fabric against published experiments. Each test names its source and the published value; rates are given as
// parts of the line rate that payload can have, because the publications' packets have other sizes than ours.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "fabric/flow.hpp"

namespace tensorwire::fabric {
namespace {

#if defined(TENSORWIRE_ASAN) || defined(TENSORWIRE_TSAN)
constexpr bool kSlow = true;
#else
constexpr bool kSlow = false;
#endif
constexpr std::uint64_t kGbps = 1'000'000'000;
constexpr Ps k40G = 200;  // ps for a byte
constexpr Ps k100G = 80;
constexpr std::uint32_t kMtu = 1024;
/// Payload's part of the bytes on the wire (published packets: 1000 of 1048 bytes).
constexpr double kPayloadShare = 1024.0 / (1024 + 82);

LinkConfig link(Ps ps_per_byte, Ps delay = kMicrosecond) {
  LinkConfig config;
  config.ps_per_byte = ps_per_byte;
  config.delay = delay;
  return config;
}

/// An engine without windows, as the NICs of the publications.
FabricConfig open_windows() {
  FabricConfig config;
  config.engine.qp_window_bytes = 1U << 30;
  config.switches.buffer.bytes = 12U << 20;
  config.switches.buffer.alpha_log2 = -3;
  config.switches.buffer.headroom_bytes = 64 * 1024;
  return config;
}

FabricConfig with_dcqcn() {
  FabricConfig config = open_windows();
  config.engine.dcqcn = transport::dcqcn_paper(40 * kGbps);
  // Their figures are for a hyper increase like the additive one.
  config.engine.dcqcn.hyper_increase = config.engine.dcqcn.additive_increase;
  config.switches.ecn = {true, 5'000, 200'000, 10'000};
  return config;
}

/// Endless flows; how many Gb/s of payload each completes from `from` to `until`.
class Greedy {
 public:
  Greedy(const Topology& topology, const FabricConfig& config) : fabric(topology, config) {}

  void add(HostId from, HostId to) {
    FlowConfig flow;
    flow.from = from;
    flow.to = to;
    flow.message_bytes = 64 * kMtu;
    flow.messages = 0;
    flow.outstanding = 64;
    flow.connection.mtu = transport::MtuCode::k1024;
    flow.connection.timeout = 7;  // 524 us
    flows_.push_back(std::make_unique<Flow>(fabric, flow));
  }
  std::vector<double> gbps(Ps from, Ps until) {
    fabric.run(from);
    std::vector<double> before;
    for (const auto& flow : flows_) before.push_back(static_cast<double>(flow->completed_bytes()));
    fabric.run(until);
    std::vector<double> rates;
    for (std::size_t i = 0; i < flows_.size(); ++i) {
      EXPECT_FALSE(flows_[i]->failed());
      const double bytes = static_cast<double>(flows_[i]->completed_bytes()) - before[i];
      rates.push_back(bytes * 8e3 / static_cast<double>(until - from));
    }
    return rates;
  }

  Fabric fabric;

 private:
  std::vector<std::unique_ptr<Flow>> flows_;
};

// ---- O1: the fixed point of DCQCN (Zhu, Ghobadi, Misra, Padhye, "ECN or Delay", CoNEXT 2016)

/// The marking probability at which DCQCN with N flows is in balance, and the queue that gives it (section 3.1 there).
double fixed_point_kb(int flows) {
  const double tau = 55e-6;
  const double packet = (kMtu + 82) * 8;
  const double rc = 40e9 / flows / packet;
  const double rai = 40e6 / packet;
  const double bytes = 10e6 / (kMtu + 82);
  const double f = 5;
  const auto excess = [&](double p) {
    const double a = 1 - std::pow(1 - p, tau * rc);
    const double alpha = 1 - std::pow(1 - p, tau * rc);
    const double b = p / (std::pow(1 - p, -bytes) - 1);
    const double c = b * std::pow(1 - p, f * bytes);
    const double d = p / (std::pow(1 - p, -tau * rc) - 1);
    const double e = d * std::pow(1 - p, f * tau * rc);
    return a * a * alpha / ((b + d) * (c + e)) - tau * tau * rai * rc;
  };
  double low = 1e-7, high = 0.01;
  for (int i = 0; i < 200; ++i) ((excess((low + high) / 2) > 0) ? high : low) = (low + high) / 2;
  return 5 + low / 0.01 * (200 - 5);
}

class QueueWatch final : public Actor {
 public:
  QueueWatch(Fabric& fabric, PortId port, Ps from) : fabric_(fabric), port_(port) { fabric.call_at(from, *this); }
  void act(Ps now) override {
    sum_ += static_cast<double>(fabric_.ports()[port_].queued_bytes);
    ++count_;
    fabric_.call_at(now + kMicrosecond, *this);
  }
  [[nodiscard]] double mean_kb() const { return sum_ / count_ / 1000; }

 private:
  Fabric& fabric_;
  PortId port_;
  double sum_ = 0;
  double count_ = 0;
};

/// Of 0.1 to 0.2 s, as published.
double mean_queue_kb(int senders, const FabricConfig& config) {
  Greedy test(single_switch(static_cast<std::uint32_t>(senders) + 1, link(k40G)), config);
  const auto receiver = static_cast<HostId>(senders);
  for (HostId host = 0; host < receiver; ++host) test.add(host, receiver);
  QueueWatch queue(test.fabric, test.fabric.routes().port_to[receiver], 100 * kMillisecond);
  (void)test.gbps(100 * kMillisecond, 200 * kMillisecond);
  return queue.mean_kb();
}

class FixedPoint : public ::testing::TestWithParam<std::pair<int, double>> {};

TEST_P(FixedPoint, IsTheMeanQueue) {
  const auto [senders, published] = GetParam();
  EXPECT_NEAR(fixed_point_kb(senders), published, 0.06 * published) << "our packets are 5 % longer";
  if (kSlow && senders > 2) GTEST_SKIP() << "takes long with a sanitizer";
  EXPECT_NEAR(mean_queue_kb(senders, with_dcqcn()), published, 0.3 * published);
}

INSTANTIATE_TEST_SUITE_P(Published, FixedPoint,
                         ::testing::Values(std::pair{2, 20.9}, std::pair{4, 43.6}, std::pair{8, 98.0}));

// Published for ten flows: 128.2, ns-3 132.3 with a 95th percentile of 194 KB. Beyond 200 KB every packet is marked,
// and a queue that swings so far is cut to nothing. Whether it gets there depends on how often a receiver tells: with a
// CNP at the first mark and one at the end of the interval (the paper's section 3.1) ours does, 75 KB; with the next
// mark after the interval (cards) it does not, 157 KB. The published simulator tells once an interval and lies between.
TEST(FixedPointOfTen, LiesBetweenTheTwoMannersOfTelling) {
  if (kSlow) GTEST_SKIP() << "takes long with a sanitizer";
  constexpr double kPublished = 128.2;
  FabricConfig config = with_dcqcn();
  EXPECT_LT(mean_queue_kb(10, config), kPublished);
  config.engine.dcqcn.trailing_cnp = false;
  const double rarely_told = mean_queue_kb(10, config);
  EXPECT_GT(rarely_told, kPublished);
  EXPECT_NEAR(rarely_told, kPublished, 0.3 * kPublished);
}

// ---- O2: the parking lot. PFC shares by ingress port, not by flow.

/// Two or three switches in front of the one that has the receiver; senders by switch, the last one's are local.
Topology parking_lot(const std::vector<std::uint32_t>& senders) {
  Topology topology;
  const SwitchId last = topology.add_switch("last");
  std::uint32_t hosts = 0;
  for (const std::uint32_t count : senders) hosts += count;
  topology.add_hosts(hosts + 1);
  HostId next = 0;
  for (std::size_t i = 0; i < senders.size(); ++i) {
    const bool local = i + 1 == senders.size();
    const SwitchId at = local ? last : topology.add_switch("remote");
    for (std::uint32_t n = 0; n < senders[i]; ++n) topology.link_host(next++, at, link(k40G));
    if (!local) topology.link_switches(at, last, link(k40G));
  }
  topology.link_host(next, last, link(k40G));
  return topology;
}

std::vector<double> shares(const std::vector<std::uint32_t>& senders, const FabricConfig& config, Ps from, Ps until,
                           std::uint64_t* pauses = nullptr) {
  const Topology topology = parking_lot(senders);
  Greedy test(topology, config);
  for (HostId host = 0; host + 1 < topology.hosts; ++host) test.add(host, topology.hosts - 1);
  std::vector<double> rates = test.gbps(from, until);
  for (double& rate : rates) rate /= kPayloadShare;
  if (pauses != nullptr) *pauses = test.fabric.counters().pauses_sent;
  return rates;
}

TEST(ParkingLot, OneUplinkForThree) {  // theory 20 / 6.67 x 3, ns-3 0.957 x 20 / 0.954 to 0.961 x 6.67
  const auto rates = shares({3, 1}, open_windows(), 5 * kMillisecond, 25 * kMillisecond);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(rates[i], 6.67, 0.05 * 6.67) << i;
  EXPECT_NEAR(rates[3], 20, 0.05 * 20);
}

TEST(ParkingLot, TwoUplinks) {  // theory 6.67 x 2 / 13.33 / 13.33
  const auto rates = shares({2, 1, 1}, open_windows(), 5 * kMillisecond, 25 * kMillisecond);
  for (int i = 0; i < 2; ++i) EXPECT_NEAR(rates[i], 6.67, 0.05 * 6.67) << i;
  for (int i = 2; i < 4; ++i) EXPECT_NEAR(rates[i], 13.33, 0.05 * 13.33) << i;
}

TEST(ParkingLot, DcqcnIsFairWithoutPauses) {  // published: no PFC event, about 9.5 of payload each over 100 ms
  std::uint64_t pauses = 0;
  const auto rates = shares({3, 1}, with_dcqcn(), 20 * kMillisecond, 120 * kMillisecond, &pauses);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(rates[i], 9.5 / 0.954, 0.15 * 10) << i;
  EXPECT_EQ(pauses, 0U);
}

// ---- O3: a victim of PFC

/// Hosts: A 0, B 1 behind one uplink; three locals 2 to 4; R1 5, R2 6. Returns B's share.
double victim(const FabricConfig& config, Ps from, Ps until, std::uint64_t* pauses = nullptr) {
  Topology topology;
  const SwitchId near = topology.add_switch("near");
  const SwitchId far = topology.add_switch("far");
  topology.add_hosts(7);
  for (HostId host = 0; host < 7; ++host) topology.link_host(host, host < 2 ? near : far, link(k40G));
  topology.link_switches(near, far, link(k40G));
  Greedy test(topology, config);
  test.add(1, 6);
  for (const HostId host : {0U, 2U, 3U, 4U}) test.add(host, 5);
  const double rate = test.gbps(from, until)[0] / kPayloadShare;
  if (pauses != nullptr) *pauses = test.fabric.counters().pauses_sent;
  return rate;
}

TEST(Victim, OfPauses) {  // theory C/4 (9.54 of payload), ns-3 9.41
  EXPECT_NEAR(victim(open_windows(), 5 * kMillisecond, 25 * kMillisecond), 10, 0.05 * 10);
}

TEST(Victim, IsRescuedByDcqcn) {  // 29.6 of payload (ideal 28.6), no PFC
  std::uint64_t pauses = 0;
  const double rate = victim(with_dcqcn(), 20 * kMillisecond, 120 * kMillisecond, &pauses);
  EXPECT_NEAR(rate, 29.6 / 0.954, 0.1 * 31);
  EXPECT_EQ(pauses, 0U);
}

// ---- O4: go-back-N under loss. Theory: (1 - p) / (1 - p + p W)

constexpr std::uint32_t kWindow = 241;

/// The part of the line's payload that a flow gets over a round trip of 241 packets.
double goodput(std::uint32_t per_million, std::uint32_t lose_every, Ps until) {
  constexpr Ps kPacketTime = (kMtu + 82) * k100G;
  const Ps delay = (kWindow * kPacketTime - kPacketTime - 82 * k100G) / 4;
  LinkConfig lossy = link(k100G, delay);
  lossy.loss_per_million = per_million;
  lossy.lose_every = lose_every;
  Topology topology;
  topology.add_hosts(2);
  const SwitchId only = topology.add_switch("switch");
  topology.link_host(0, only, lossy);
  topology.link_host(1, only, link(k100G, delay));
  Greedy test(topology, open_windows());
  test.add(0, 1);
  return test.gbps(0, until)[0] / kPayloadShare / 100;
}

class GoBackN : public ::testing::TestWithParam<std::pair<std::uint32_t, double>> {};

TEST_P(GoBackN, LosesARoundTripForEachLoss) {
  const auto [per_million, published] = GetParam();
  const double rate = goodput(per_million, 0, kSlow ? 10 * kMillisecond : 80 * kMillisecond);
  const double payload_of_line = 95.4;  // Gb/s, of packets of 1000 + 48 bytes
  EXPECT_NEAR(rate, published / payload_of_line, (kSlow ? 0.15 : 0.06) * published / payload_of_line);
  const double p = per_million / 1e6;
  EXPECT_LT(rate, 1.02 * (1 - p) / (1 - p + p * kWindow)) << "theory knows no lost NAKs and timeouts";
}

INSTANTIATE_TEST_SUITE_P(Published, GoBackN,
                         ::testing::Values(std::pair{100U, 94.6}, std::pair{1000U, 76.3}, std::pair{3906U, 44.7},
                                           std::pair{10'000U, 21.5}));

TEST(GoBackNEvery256th, LosesAWindowOutOfEach) {  // published: about 1 - (W + 1) / 256 = 0.055
  const double packet = 1.0 / 256;
  EXPECT_NEAR(goodput(0, 256, 20 * kMillisecond), 1 - (kWindow + 1) * packet, 3 * packet);
}

// ---- ECMP: a random permutation on a three-tier fat tree of 128 hosts. Published for max-min fair flows: together
// 0.476
// +- 0.020 of the line rate, the slowest 0.24.

struct Permutation {
  explicit Permutation(std::uint64_t seed) : fabric(fat_tree(8, link(k100G)), with(seed)) {
    std::vector<HostId> to(fabric.host_count());
    std::iota(to.begin(), to.end(), 0U);
    Random random(seed);
    for (HostId host = fabric.host_count() - 1; host > 0; --host) std::swap(to[host], to[random.below(host)]);
    for (HostId host = 0; host < fabric.host_count(); ++host)
      flows.push_back(std::make_unique<Flow>(fabric, FlowConfig{.from = host, .to = to[host]}));
  }
  static FabricConfig with(std::uint64_t seed) {
    FabricConfig config;
    config.seed = seed;
    config.switches.buffer.bytes = 256U << 20;  // no queue is ever told to be silent
    config.engine.ack_coalesce = config.engine.ack_request_every = 4;
    return config;
  }

  /// Parts of the line rate, by flow: the way of each is that of its packets, and who shares a link shares it fairly.
  [[nodiscard]] std::vector<double> max_min() const {
    std::vector<std::vector<std::size_t>> users(fabric.ports().size());
    for (std::size_t n = 0; n < flows.size(); ++n)
      for (const PortId port : flows[n]->path()) users[port].push_back(n);
    std::vector<double> left(users.size(), 1), rates(flows.size());
    std::vector<bool> settled(flows.size());
    for (std::size_t count = 0; count < flows.size();) {
      double least = 2;
      PortId narrowest = 0;
      for (PortId port = 0; port < users.size(); ++port) {
        const auto open = std::ranges::count_if(users[port], [&](std::size_t n) { return !settled[n]; });
        if (open == 0 || left[port] / static_cast<double>(open) >= least) continue;
        least = left[port] / static_cast<double>(open);
        narrowest = port;
      }
      for (const std::size_t n : users[narrowest]) {
        if (settled[n]) continue;
        settled[n] = true;
        ++count;
        rates[n] = least;
        for (const PortId port : flows[n]->path()) left[port] -= least;
      }
    }
    return rates;
  }

  Fabric fabric;
  std::vector<std::unique_ptr<Flow>> flows;
};

TEST(Ecmp, APermutationGetsHalfOfTheLine) {
  constexpr std::uint64_t kSeeds = 20;
  double sum = 0, slowest = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::vector<double> rates = Permutation(seed).max_min();
    sum += std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(rates.size());
    slowest += std::ranges::min(rates);
  }
  EXPECT_NEAR(sum / kSeeds, 0.476, 0.020);
  EXPECT_NEAR(slowest / kSeeds, 0.24, 0.03);
}

TEST(Ecmp, PacketsGoTheWayThatWasPredicted) {
  Permutation test(1);
  EXPECT_FALSE(test.fabric.run(kSecond));
  std::vector<bool> used(test.fabric.ports().size());
  for (const auto& flow : test.flows) {
    EXPECT_TRUE(flow->finished());
    for (const PortId port : flow->path()) used[port] = true;
  }
  constexpr std::uint64_t kPackets = 256;  // of a flow
  for (PortId port = 0; port < used.size(); ++port)
    EXPECT_EQ(test.fabric.ports()[port].counters.data_packets >= kPackets, used[port]) << test.fabric.name_of(port);
}

}  // namespace
}  // namespace tensorwire::fabric
