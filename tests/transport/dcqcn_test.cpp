// DCQCN: the two machines against hand-computed vectors, then two senders that share a port in virtual time.
#include "transport/dcqcn.hpp"

#include <array>
#include <cmath>

#include "lab.hpp"
#include "uc_lab.hpp"
#include "world.hpp"

namespace tensorwire::transport::test {
namespace {

constexpr std::uint64_t kGbps = 1'000'000'000;

double gbps(std::uint64_t rate) { return static_cast<double>(rate) / static_cast<double>(kGbps); }
double alpha_of(const RateLimiter& limiter) {
  return static_cast<double>(limiter.alpha()) / static_cast<double>(RateLimiter::kAlphaOne);
}

/// Sends 1 KiB every 100 ns up to `until`, so that the timers run without a gap.
void keep_sending(RateLimiter& limiter, const DcqcnConfig& config, Ps from, Ps until) {
  for (Ps now = from; now <= until; now += 100 * kNanosecond) (void)limiter.on_sent(config, 1024, now);
}

using Verdict = CnpPacer::Verdict;

TEST(CnpPacer, OneAnIntervalAndTheFirstAtOnce) {
  DcqcnConfig config;
  config.trailing_cnp = false;
  CnpPacer pacer;
  EXPECT_EQ(pacer.on_marked(config, 0), Verdict::kNow);
  EXPECT_EQ(pacer.on_marked(config, 1), Verdict::kNothing);
  EXPECT_EQ(pacer.on_marked(config, 50 * kMicrosecond - 1), Verdict::kNothing);
  EXPECT_EQ(pacer.on_marked(config, 50 * kMicrosecond), Verdict::kNow);
  EXPECT_EQ(pacer.on_marked(config, 99 * kMicrosecond), Verdict::kNothing);
}

// Marks at 0, 10, 20, 120, 130 and 180 us: CNPs at 0, 50 (for 10 and 20), 120, 170 (for 130) and 220 (for 180).
TEST(CnpPacer, MarksWithinTheIntervalAreToldAtItsEnd) {
  const DcqcnConfig config;
  CnpPacer pacer;
  EXPECT_EQ(pacer.on_marked(config, 0), Verdict::kNow);
  EXPECT_EQ(pacer.on_marked(config, 10 * kMicrosecond), Verdict::kLater);
  EXPECT_EQ(pacer.deadline(), 50 * kMicrosecond);
  EXPECT_EQ(pacer.on_marked(config, 20 * kMicrosecond), Verdict::kNothing);
  EXPECT_TRUE(pacer.on_deadline(config, 50 * kMicrosecond));
  EXPECT_FALSE(pacer.on_deadline(config, 100 * kMicrosecond));  // nothing was marked meanwhile
  EXPECT_EQ(pacer.on_marked(config, 120 * kMicrosecond), Verdict::kNow);
  EXPECT_EQ(pacer.on_marked(config, 130 * kMicrosecond), Verdict::kLater);
  EXPECT_EQ(pacer.deadline(), 170 * kMicrosecond);
  EXPECT_TRUE(pacer.on_deadline(config, 170 * kMicrosecond));
  EXPECT_EQ(pacer.on_marked(config, 180 * kMicrosecond), Verdict::kLater);  // the trailing one began an interval, too
  EXPECT_EQ(pacer.deadline(), 220 * kMicrosecond);
}

TEST(CnpPacer, AMarkedPacketThatComesBeforeALateTimerTellsForBoth) {
  const DcqcnConfig config;
  CnpPacer pacer;
  EXPECT_EQ(pacer.on_marked(config, 0), Verdict::kNow);
  EXPECT_EQ(pacer.on_marked(config, 10 * kMicrosecond), Verdict::kLater);
  EXPECT_EQ(pacer.on_marked(config, 60 * kMicrosecond), Verdict::kNow);
  EXPECT_FALSE(pacer.on_deadline(config, 61 * kMicrosecond));
}

// The paper's figures at 40 Gb/s: one CNP halves, fast recovery halves the distance every 55 us.
TEST(RateLimiterPaper, OneCnpThenFastRecovery) {
  const DcqcnConfig config = dcqcn_paper(40 * kGbps);
  RateLimiter limiter;
  EXPECT_FALSE(limiter.active());
  limiter.on_cnp(config, 0);
  EXPECT_TRUE(limiter.active());
  EXPECT_NEAR(gbps(limiter.rate()), 20, 1e-6);
  EXPECT_NEAR(alpha_of(limiter), 1, 1e-6);
  const double expected[] = {30, 35, 37.5, 38.75};
  for (int k = 1; k <= 4; ++k) {
    const Ps at = k * 55 * kMicrosecond;
    (void)limiter.on_sent(config, 1024, at);
    EXPECT_NEAR(gbps(limiter.rate()), expected[k - 1], 1e-6) << k;
    EXPECT_NEAR(alpha_of(limiter), std::pow(255.0 / 256.0, k), 1e-6) << k;
  }
}

TEST(RateLimiterPaper, SecondCnpCutsByTheOldAlphaAndRemembersTheRate) {
  const DcqcnConfig config = dcqcn_paper(40 * kGbps);
  RateLimiter limiter;
  limiter.on_cnp(config, 0);
  (void)limiter.on_sent(config, 1024, 55 * kMicrosecond);  // 30 Gb/s, alpha 255/256
  limiter.on_cnp(config, 60 * kMicrosecond);
  EXPECT_NEAR(gbps(limiter.target()), 30, 1e-6);
  EXPECT_NEAR(gbps(limiter.rate()), 30 * (1 - 255.0 / 512.0), 1e-5);
  EXPECT_NEAR(alpha_of(limiter), 255.0 / 256.0 * 255.0 / 256.0 + 1.0 / 256.0, 1e-6);
  // Both timers began anew at the CNP: nothing happens before 115 us.
  const std::uint64_t cut = limiter.rate();
  keep_sending(limiter, config, 60 * kMicrosecond, 114 * kMicrosecond);
  EXPECT_EQ(limiter.rate(), cut);
  keep_sending(limiter, config, 114 * kMicrosecond, 116 * kMicrosecond);
  EXPECT_NEAR(gbps(limiter.rate()), (30 + gbps(cut)) / 2, 1e-6);
}

// Timer alone: five steps of fast recovery, then additive increase of the target; never hyper increase.
TEST(RateLimiterPaper, AdditiveIncreaseAfterFastRecovery) {
  DcqcnConfig config = dcqcn_paper(40 * kGbps);
  config.increase_bytes = 1'000'000'000'000;
  RateLimiter limiter;
  for (int i = 0; i < 5; ++i) limiter.on_cnp(config, i);  // 40 -> 20 -> 10 -> 5 -> 2.5 -> 1.25; target 2.5
  EXPECT_NEAR(gbps(limiter.target()), 2.5, 1e-3);
  keep_sending(limiter, config, 0, 4 * 55 * kMicrosecond + 10 * kMicrosecond);
  EXPECT_NEAR(gbps(limiter.target()), 2.5, 1e-3);
  keep_sending(limiter, config, 230 * kMicrosecond, 280 * kMicrosecond);
  EXPECT_NEAR(gbps(limiter.target()), 2.54, 1e-3);
  keep_sending(limiter, config, 280 * kMicrosecond, 20 * 55 * kMicrosecond + 10 * kMicrosecond);
  EXPECT_NEAR(gbps(limiter.target()), 2.5 + 16 * 0.04, 1e-3);
}

TEST(RateLimiterPaper, HyperIncreaseNeedsTimerAndBytes) {
  DcqcnConfig config = dcqcn_paper(40 * kGbps);
  config.increase_bytes = 10 * (1024);
  RateLimiter limiter;
  for (int i = 0; i < 6; ++i) limiter.on_cnp(config, i);
  keep_sending(limiter, config, 0, 5 * 55 * kMicrosecond + 10 * kMicrosecond);  // byte counter far ahead, T = 5
  const std::uint64_t before = limiter.target();
  keep_sending(limiter, config, 285 * kMicrosecond, 6 * 55 * kMicrosecond + 10 * kMicrosecond);  // T = 6: i = 1
  EXPECT_GE(limiter.target(), std::min(before + config.hyper_increase, config.line_rate));
}

TEST(RateLimiterPaper, ReleasedAtLineRateAndFreshAfterwards) {
  const DcqcnConfig config = dcqcn_paper(40 * kGbps);
  RateLimiter limiter;
  limiter.on_cnp(config, 0);
  Ps now = 0;
  while (limiter.active() && now < 10 * kMillisecond) (void)limiter.on_sent(config, 1024, now += kMicrosecond);
  EXPECT_FALSE(limiter.active());
  EXPECT_EQ(limiter.on_sent(config, 1024, now), now);
  limiter.on_cnp(config, now);
  EXPECT_NEAR(gbps(limiter.rate()), 20, 1e-6);
}

TEST(RateLimiterPaper, SilenceCountsForAFewSteps) {
  const DcqcnConfig config = dcqcn_paper(40 * kGbps);
  RateLimiter limiter;
  for (int i = 0; i < 8; ++i) limiter.on_cnp(config, i);
  (void)limiter.on_sent(config, 1024, kMicrosecond);
  RateLimiter busy = limiter;
  (void)limiter.on_sent(config, 1024, kSecond);
  keep_sending(busy, config, kMicrosecond, 6 * 55 * kMicrosecond);
  EXPECT_LE(limiter.rate(), busy.rate());
  EXPECT_TRUE(limiter.active());
}

TEST(RateLimiterPaper, NeverBelowTheFloor) {
  const DcqcnConfig config = dcqcn_paper(40 * kGbps);
  RateLimiter limiter;
  for (int i = 0; i < 100; ++i) limiter.on_cnp(config, i);
  EXPECT_EQ(limiter.rate(), config.min_rate);
}

TEST(RateLimiterPaper, PacesWhatIsSent) {
  DcqcnConfig config = dcqcn_paper(40 * kGbps);
  config.burst_bytes = 0;
  RateLimiter limiter;
  limiter.on_cnp(config, 0);  // 20 Gb/s: 5000 bytes in 2 us
  EXPECT_EQ(limiter.on_sent(config, 5000, 0), 2 * kMicrosecond);
  EXPECT_EQ(limiter.on_sent(config, 5000, 2 * kMicrosecond), 4 * kMicrosecond);
  EXPECT_EQ(limiter.on_sent(config, 5000, 10 * kMicrosecond), 12 * kMicrosecond);
}

TEST(RateLimiterPaper, ABurstMayLeaveAfterAPause) {
  DcqcnConfig config = dcqcn_paper(40 * kGbps);
  config.burst_bytes = 15000;
  RateLimiter limiter;
  limiter.on_cnp(config, 0);
  const Ps now = 100 * kMicrosecond;
  (void)limiter.on_sent(config, 64, now - kMicrosecond);
  EXPECT_LE(limiter.on_sent(config, 5000, now), now);
  EXPECT_LE(limiter.on_sent(config, 5000, now), now);
  (void)limiter.on_sent(config, 5000, now);
  EXPECT_GT(limiter.on_sent(config, 5000, now), now);
}

// A card cuts when its periodic check finds that a CNP came, not at the CNP.
TEST(RateLimiterNic, CutsAtTheCheck) {
  const DcqcnConfig config = dcqcn_nic(25 * kGbps);
  RateLimiter limiter;
  limiter.on_cnp(config, 0);
  EXPECT_EQ(limiter.rate(), config.line_rate);
  keep_sending(limiter, config, 0, 4 * kMicrosecond - 1);
  EXPECT_EQ(limiter.rate(), config.line_rate);
  (void)limiter.on_sent(config, 1024, 4 * kMicrosecond);
  // Four checks of alpha without a CNP came first.
  EXPECT_NEAR(gbps(limiter.rate()), 25 * (1 - std::pow(255.0 / 256.0, 4) / 2), 1e-4);
  const std::uint64_t cut = limiter.rate();
  keep_sending(limiter, config, 4 * kMicrosecond, 303 * kMicrosecond);  // checks without a CNP cut nothing
  EXPECT_EQ(limiter.rate(), cut);
}

TEST(RateLimiterNic, FastThenAdditiveThenHyper) {
  const DcqcnConfig config = dcqcn_nic(25 * kGbps);
  RateLimiter limiter;
  limiter.on_cnp(config, 0);
  keep_sending(limiter, config, 0, 5 * kMicrosecond);
  limiter.on_cnp(config, 5 * kMicrosecond);
  keep_sending(limiter, config, 5 * kMicrosecond, 9 * kMicrosecond);  // cut again at 8 us
  const std::uint64_t target = limiter.target();
  EXPECT_LT(target, config.line_rate);
  keep_sending(limiter, config, 9 * kMicrosecond, 310 * kMicrosecond);
  EXPECT_EQ(limiter.target(), target);
  keep_sending(limiter, config, 310 * kMicrosecond, 610 * kMicrosecond);
  EXPECT_EQ(limiter.target(), target + config.additive_increase);
  keep_sending(limiter, config, 610 * kMicrosecond, 910 * kMicrosecond);
  EXPECT_EQ(limiter.target(), target + config.additive_increase + config.hyper_increase);
}

// ---- in the engine

/// 40 Gb/s, with the marking that each variant's authors use: the paper's, and HPCC's, which scales with the line rate.
VirtualWire shared_port(DcqcnVariant variant) {
  VirtualWire wire;
  wire.ps_per_byte = 200;
  wire.port_ps_per_byte = 200;
  if (variant == DcqcnVariant::kNic) {
    wire.ecn_min_bytes = 160'000;
    wire.ecn_max_bytes = 640'000;
    wire.ecn_max_per_million = 200'000;
  }
  return wire;
}

/// Keeps 1 MiB writes posted on every queue pair until `until`; returns the bytes that each completed after `from`.
std::vector<std::uint64_t> saturate(World& world, const std::vector<std::pair<End, End>>& flows,
                                    std::vector<Buffer>& sources, std::vector<Buffer>& targets, Ps from, Ps until) {
  constexpr std::uint32_t kMessage = 64 * 1024;
  std::vector<std::uint64_t> bytes(flows.size());
  const auto post = [&](std::size_t i) {
    const Sge sge = sources[i].sge(0, kMessage);
    ASSERT_EQ(flows[i].first.send(write_wr(i, {&sge, 1}, targets[i].address(), targets[i].key), world.loop.now()), 0);
  };
  for (std::size_t i = 0; i < flows.size(); ++i)
    for (int k = 0; k < 16; ++k) post(i);
  while (world.loop.now() < until && world.loop.step()) {
    for (std::size_t i = 0; i < flows.size(); ++i) {
      for (const Completion& done : flows[i].first.poll()) {
        EXPECT_EQ(done.status, WcStatus::kSuccess);
        if (world.loop.now() >= from) bytes[done.wr_id] += kMessage;
        post(done.wr_id);
      }
    }
  }
  return bytes;
}

struct TwoToOne {
  explicit TwoToOne(const DcqcnConfig& dcqcn) : world(3, shared_port(dcqcn.variant), config(dcqcn)) {
    for (std::size_t i = 0; i < 2; ++i) {
      Connection connection;
      connection.mtu = MtuCode::k1024;
      connection.timeout = 16;
      flows.push_back(world.connect(i, 2, connection));
      sources.push_back(world.hosts[i]->buffer(64 * 1024));
      targets.push_back(world.hosts[2]->buffer(64 * 1024));
    }
  }
  static EngineConfig config(const DcqcnConfig& dcqcn) {
    EngineConfig config;
    config.dcqcn = dcqcn;
    return config;
  }
  std::vector<std::uint64_t> run(Ps from, Ps until) { return saturate(world, flows, sources, targets, from, until); }

  World world;
  std::vector<std::pair<End, End>> flows;
  std::vector<Buffer> sources, targets;
};

class TwoToOneConverges : public ::testing::TestWithParam<DcqcnVariant> {};

TEST_P(TwoToOneConverges, ToFairShares) {
  const DcqcnConfig config = GetParam() == DcqcnVariant::kPaper ? dcqcn_paper(40 * kGbps) : dcqcn_nic(40 * kGbps);
  TwoToOne test(config);
  const Ps from = 20 * kMillisecond;
  const Ps until = 60 * kMillisecond;
  const std::vector<std::uint64_t> bytes = test.run(from, until);
  const double seconds = static_cast<double>(until - from) / kSecond;
  const double first = static_cast<double>(bytes[0]) * 8 / seconds / 1e9;
  const double second = static_cast<double>(bytes[1]) * 8 / seconds / 1e9;
  RecordProperty("first_gbps", std::to_string(first));
  RecordProperty("second_gbps", std::to_string(second));
  EXPECT_GT(first + second, 0.8 * 40) << first << " + " << second;
  EXPECT_NEAR(first / (first + second), 0.5, 0.1);
  const EngineCounters& receiver = test.world.hosts[2]->engine.counters();
  EXPECT_GT(receiver.np_ecn_marked_roce_packets, 0U);
  EXPECT_GT(receiver.np_cnp_sent, 0U);
  // At most one CNP each 50 us for each queue pair.
  EXPECT_LE(receiver.np_cnp_sent, 2 * static_cast<std::uint64_t>(until / config.cnp_interval + 1));
  EXPECT_GT(test.world.hosts[0]->engine.counters().rp_cnp_handled, 0U);
  EXPECT_EQ(test.world.hosts[0]->engine.counters().retransmitted_packets, 0U);
}

INSTANTIATE_TEST_SUITE_P(Variants, TwoToOneConverges, ::testing::Values(DcqcnVariant::kPaper, DcqcnVariant::kNic));

TEST(Dcqcn, OffNothingIsEcnCapableAndTheWindowsFillTheQueue) {
  TwoToOne test(DcqcnConfig{});
  (void)test.run(0, 10 * kMillisecond);
  EXPECT_EQ(test.world.loop.counters().marked, 0U);
  EXPECT_EQ(test.world.hosts[2]->engine.counters().np_cnp_sent, 0U);
  EXPECT_GT(test.world.loop.counters().longest_queue, 500'000U);
}

TEST(Dcqcn, OffIgnoresACnpAndOnHeedsIt) {
  for (const bool on : {false, true}) {
    EngineConfig config;
    config.dcqcn.enabled = on;
    World world(2, {}, config);
    const auto [a, b] = world.connect(0, 1);
    wire::Headers cnp;
    cnp.opcode = wire::Opcode::kCnp;
    cnp.becn = true;
    cnp.dest_qpn = a.qp->qpn();
    const RxVerdict verdict = a.host->engine.classify(cnp, wire::kCnpPayloadBytes, {b.host->gid, 4096, false}, 0);
    ASSERT_EQ(verdict.action, RxAction::kControl);
    a.host->engine.commit(verdict, cnp, wire::kCnpPayloadBytes, 0);
    EXPECT_EQ(a.host->engine.counters().rp_cnp_handled, on ? 1U : 0U);
    EXPECT_EQ(a.host->engine.counters().rp_cnp_ignored, on ? 0U : 1U);
    const RxVerdict forged = a.host->engine.classify(cnp, wire::kCnpPayloadBytes, {host_gid(7), 4096, false}, 0);
    EXPECT_EQ(forged.action, RxAction::kDrop);
  }
}

// The queue pair of the receiver as a link sees it: the trailing CNP is a deadline, and no more traffic is needed for
// it.
TEST(Dcqcn, MarksAreToldAlsoWhenSilenceFollows) {
  EngineConfig config;
  config.dcqcn = dcqcn_paper(40 * kGbps);
  World world(2, {}, config);
  const auto [a, b] = world.connect(0, 1);
  Engine& engine = b.host->engine;
  wire::Headers marked;
  marked.opcode = wire::Opcode::kRcSendOnly;
  marked.dest_qpn = b.qp->qpn();
  marked.psn = 0xfffff0;
  const auto arrive = [&](Ps now) {
    ASSERT_EQ(b.receive(1), 0);
    const RxVerdict verdict = engine.classify(marked, 0, {a.host->gid, 4096, true}, now);
    engine.commit(verdict, marked, 0, now);
    marked.psn = wire::psn_add(marked.psn, 1);
  };
  const auto cnps = [&](Ps now) {
    std::array<TxDesc, 8> out;
    while (engine.next_tx(now, 1 << 20, out) != 0) {
    }
    return engine.counters().np_cnp_sent;
  };
  arrive(0);
  EXPECT_EQ(cnps(0), 1U);
  EXPECT_EQ(engine.next_deadline(), kNever);
  arrive(10 * kMicrosecond);
  arrive(20 * kMicrosecond);
  EXPECT_EQ(cnps(20 * kMicrosecond), 1U);
  EXPECT_EQ(engine.next_deadline(), 50 * kMicrosecond);
  engine.on_timer(50 * kMicrosecond);
  EXPECT_EQ(cnps(50 * kMicrosecond), 2U);
  EXPECT_EQ(engine.next_deadline(), kNever);
  arrive(60 * kMicrosecond);
  EXPECT_EQ(engine.next_deadline(), 100 * kMicrosecond);
  QpAttr attr;
  ASSERT_EQ(engine.modify_qp(*b.qp, attr, kAttrState, 0), 0);  // RESET
  EXPECT_EQ(engine.next_deadline(), kNever);
  EXPECT_EQ(cnps(100 * kMicrosecond), 2U);
}

// A local error stops the send queue alone; what the receiving half owes to its peer goes on.
TEST(Dcqcn, MarksAreToldByAQueuePairWhoseSendQueueStopped) {
  EngineConfig config;
  config.dcqcn = dcqcn_paper(40 * kGbps);
  World world(2, {}, config);
  const auto [a, b] = world.connect(0, 1, uc());
  Engine& engine = b.host->engine;
  wire::Headers marked;
  marked.opcode = wire::Opcode::kUcWriteOnly;
  marked.dest_qpn = b.qp->qpn();
  for (const Ps now : {Ps{0}, 10 * kMicrosecond}) {
    const RxVerdict verdict = engine.classify(marked, 0, {a.host->gid, 4096, true}, now);
    engine.commit(verdict, marked, 0, now);
  }
  const Sge nowhere{0x1000, 8, 0xbad};
  ASSERT_EQ(b.send(write_wr(1, {&nowhere, 1}, 0, 0)), 0);
  std::array<TxDesc, 8> out;
  while (engine.next_tx(20 * kMicrosecond, 1 << 20, out) != 0) {
  }
  ASSERT_EQ(b.qp->state(), QpState::kSqe);
  EXPECT_EQ(engine.counters().np_cnp_sent, 1U);
  EXPECT_EQ(engine.next_deadline(), 50 * kMicrosecond);
  engine.on_timer(50 * kMicrosecond);
  EXPECT_EQ(engine.next_tx(50 * kMicrosecond, 1 << 20, out), 1U);
  EXPECT_EQ(engine.counters().np_cnp_sent, 2U);
}

TEST(Dcqcn, MarksAreToldWhereDataIsPausedIfCnpsHaveAPathOfTheirOwn) {
  EngineConfig config;
  config.dcqcn = dcqcn_paper(40 * kGbps);
  for (const bool apart : {false, true}) {
    World world(2, {}, config);
    const auto [a, b] = world.connect(0, 1);
    Engine& engine = b.host->engine;
    const PathId own = engine.create_path({});
    if (apart) engine.set_cnp_path(own);
    engine.set_path_blocked(kDefaultPath, true);
    wire::Headers marked;
    marked.opcode = wire::Opcode::kRcSendOnly;
    marked.dest_qpn = b.qp->qpn();
    marked.ack_req = true;
    marked.psn = 0xfffff0;
    ASSERT_EQ(b.receive(1), 0);
    const RxVerdict verdict = engine.classify(marked, 0, {a.host->gid, 4096, true}, 0);
    engine.commit(verdict, marked, 0, 0);
    std::array<TxDesc, 8> out;
    ASSERT_EQ(engine.next_tx(0, 1 << 20, out), apart ? 1U : 0U);
    if (apart) {
      EXPECT_EQ(out[0].headers.opcode, wire::Opcode::kCnp);
    }
    EXPECT_FALSE(engine.has_tx()) << "the acknowledgement waits with the data";
    engine.set_path_blocked(kDefaultPath, false);
    EXPECT_EQ(engine.next_tx(0, 1 << 20, out), apart ? 1U : 2U);
    EXPECT_EQ(engine.counters().np_cnp_sent, 1U);
    engine.set_path_blocked(own, true);
    engine.on_timer(50 * kMicrosecond);
    marked.psn = wire::psn_add(marked.psn, 1);
    ASSERT_EQ(b.receive(2), 0);
    engine.commit(engine.classify(marked, 0, {a.host->gid, 4096, true}, 60 * kMicrosecond), marked, 0,
                  60 * kMicrosecond);
    QpAttr attr;
    ASSERT_EQ(engine.modify_qp(*b.qp, attr, kAttrState, 0), 0);  // RESET: nothing is owed any more
    engine.set_path_blocked(own, false);
    EXPECT_FALSE(engine.has_tx());
  }
}

TEST(Dcqcn, AHeldBackQueuePairEndsCleanly) {
  EngineConfig config;
  config.dcqcn = dcqcn_paper(40 * kGbps);
  World world(2, {}, config);
  const auto [a, b] = world.connect(0, 1);
  Buffer from = a.host->buffer(1 << 20);
  Buffer to = b.host->buffer(1 << 20);
  wire::Headers cnp;
  cnp.opcode = wire::Opcode::kCnp;
  cnp.dest_qpn = a.qp->qpn();
  for (int i = 0; i < 20; ++i) {
    const RxVerdict verdict = a.host->engine.classify(cnp, wire::kCnpPayloadBytes, {b.host->gid, 4096, false}, 0);
    a.host->engine.commit(verdict, cnp, wire::kCnpPayloadBytes, 0);
  }
  const Sge sge = from.sge(0, 1 << 20);
  ASSERT_EQ(a.send(write_wr(1, {&sge, 1}, to.address(), to.key)), 0);
  world.loop.run_until(kMillisecond);
  EXPECT_LT(a.host->engine.counters().tx_packets, 100U);  // 10 Mb/s and rising: it waits for its pace
  a.host->engine.destroy_qp(*a.qp);
  world.settle();
  EXPECT_EQ(a.host->engine.next_deadline(), kNever);
}

// One rate for all that a queue pair sends: its responses hold back its requests, and the other way round.
TEST(Dcqcn, ResponsesAndRequestsShareARate) {
  EngineConfig config;
  config.dcqcn = dcqcn_paper(40 * kGbps);
  config.dcqcn.burst_bytes = 0;
  config.dcqcn.increase_period = kSecond;  // it stays at the 10 Mb/s that twenty CNPs bring it to
  Lab lab({}, config);
  wire::Headers cnp;
  cnp.opcode = wire::Opcode::kCnp;
  cnp.dest_qpn = Lab::kQpn;
  for (int i = 0; i < 20; ++i) lab.receive(cnp, wire::kCnpPayloadBytes);
  Buffer bytes = lab.host.buffer(1 << 16);
  const std::array sges = {bytes.sge(0, 1000)};
  for (std::uint32_t n = 0; n < 4; ++n) {
    ASSERT_EQ(lab.receive(lab.read(n, bytes, 1000)).action, RxAction::kControl);
    ASSERT_EQ(lab.end.send(write_wr(n, sges, bytes.address(), bytes.key), lab.now), 0);
  }
  for (int n = 0; n < 8; ++n) {
    EXPECT_EQ(lab.pull().size(), 1U) << n;
    lab.timer_at(lab.now + 200 * kMicrosecond);
    EXPECT_EQ(lab.pull().size(), 0U) << n;
    lab.timer_at(lab.now + 2 * kMillisecond);
  }
}

}  // namespace
}  // namespace tensorwire::transport::test
