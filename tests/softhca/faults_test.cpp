#include "softhca/faults.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ostream>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"

namespace tensorwire::softhca {
namespace {

using wire::Opcode;

// ---- grammar

TEST(FaultsText, ReadsEveryWord) {
  const FaultConfig c = parse_faults(
      "drop=1%, dup=0.5% ,reorder = 0.01,corrupt=100%,ce=0.0001%,delay=2%:200us,late_dma=2ms,gpu_write_late=3ms,"
      "seed=18446744073709551615,opcode=WRITE_LAST_IMM,opcode=ACK");
  EXPECT_EQ(c.drop, 10'000U);
  EXPECT_EQ(c.duplicate, 5'000U);
  EXPECT_EQ(c.reorder, 10'000U);
  EXPECT_EQ(c.corrupt, 1'000'000U);
  EXPECT_EQ(c.congestion, 1U);
  EXPECT_EQ(c.delay, 20'000U);
  EXPECT_EQ(c.delay_time, 200 * kMicrosecond);
  EXPECT_EQ(c.late_dma, 2 * kMillisecond);
  EXPECT_EQ(c.gpu_write_late, 3 * kMillisecond);
  EXPECT_EQ(c.seed, UINT64_MAX);
  EXPECT_EQ(c.opcodes.count(), 3U);
  EXPECT_TRUE(c.opcodes.test(0x29));  // the same of UC
  EXPECT_TRUE(c.opcodes.test(0x09));
  EXPECT_TRUE(c.opcodes.test(0x11));
}

TEST(FaultsText, WithoutAnOpcodeAllAreMeant) {
  const FaultConfig c = parse_faults("drop=0.25");
  EXPECT_EQ(c.drop, 250'000U);
  EXPECT_TRUE(c.opcodes.all());
}

TEST(FaultsText, WhatIsPrintedIsReadBack) {
  for (const char* text :
       {"drop=1%,seed=1", "dup=0.0001%,reorder=100%,corrupt=12.5%,ce=3%,seed=9", "seed=0",
        "delay=1%:200us,late_dma=2ms,gpu_write_late=1s,seed=4", "drop=5%,seed=1,opcode=SEND_ONLY,opcode=CNP"}) {
    EXPECT_EQ(to_string(parse_faults(text)), text);
  }
}

struct BadText {
  const char* text;
  const char* item;    ///< named in the error
  const char* remedy;  ///< part of it
};
void PrintTo(const BadText& bad, std::ostream* out) { *out << '"' << bad.text << '"'; }

class FaultsBadText : public testing::TestWithParam<BadText> {};

TEST_P(FaultsBadText, IsOneClearError) {
  try {
    std::ignore = parse_faults(GetParam().text);
    FAIL() << "accepted " << GetParam().text;
  } catch (const Error& e) {
    const std::string line = e.what();
    EXPECT_NE(line.find("TENSORWIRE_FAULTS"), std::string::npos) << line;
    EXPECT_NE(line.find(GetParam().item), std::string::npos) << line;
    EXPECT_NE(e.parts().remedy.find(GetParam().remedy), std::string::npos) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, FaultsBadText,
    testing::Values(
        BadText{"", "\"\"", "drop=1%"}, BadText{"  ", "", "drop=1%"}, BadText{"drop", "\"drop\"", "Words: drop"},
        BadText{"drop=1%,", "\"\"", "Words: drop"}, BadText{"loss=1%", "\"loss=1%\"", "Words: drop, dup"},
        BadText{"Drop=1%", "\"Drop=1%\"", "Words: drop"}, BadText{"drop=", "\"drop=\"", "0.5%"},
        BadText{"drop=%", "\"drop=%\"", "0.5%"}, BadText{"drop=x%", "x%", "0.5%"}, BadText{"drop=1%%", "1%%", "0.5%"},
        BadText{"drop=1 %x", "1 %x", "0.5%"}, BadText{"drop=nan", "nan", "0.5%"}, BadText{"drop=inf%", "inf%", "0.5%"},
        BadText{"drop=-1%", "-1%", "at most 100%"}, BadText{"drop=101%", "101%", "at most 100%"},
        BadText{"drop=1.5", "1.5", "at most 100%"}, BadText{"drop=0.00001%", "0.00001%", "0.5%"},
        BadText{"drop=1%,drop=2%", "\"drop=2%\"", "Leave one"}, BadText{"delay=1%", "\"delay=1%\"", "delay=1%:200us"},
        BadText{"delay=1%:", "\"delay=1%:\"", "200us"}, BadText{"delay=1%:200", "\"delay=1%:200\"", "200us"},
        BadText{"delay=1%:0us", "0us", "above 0"}, BadText{"delay=1%:1min", "1min", "at most 10s"},
        BadText{"delay=1%:-5us", "-5us", "200us"}, BadText{"late_dma=soon", "soon", "2ms"},
        BadText{"seed=-1", "-1", "7"}, BadText{"seed=", "\"seed=\"", "7"}, BadText{"seed=1x", "1x", "7"},
        BadText{"seed=18446744073709551616", "18446744073709551616", "7"},
        BadText{"opcode=WRITE", "\"opcode=WRITE\"", "WRITE_LAST_IMM"},
        BadText{"opcode=", "\"opcode=\"", "WRITE_LAST_IMM"}));

TEST(FaultsEnvironment, IsReadOnce) {
  ::unsetenv("TENSORWIRE_FAULTS");
  EXPECT_EQ(FaultInjector::from_environment(), nullptr);
  ::setenv("TENSORWIRE_FAULTS", "drop=3%", 1);
  const auto injector = FaultInjector::from_environment();
  ::setenv("TENSORWIRE_FAULTS", "drop=3 apples", 1);
  EXPECT_THROW(std::ignore = FaultInjector::from_environment(), Error);
  ::unsetenv("TENSORWIRE_FAULTS");
  ASSERT_NE(injector, nullptr);
  EXPECT_EQ(injector->config().drop, 30'000U);
}

// ---- judge

constexpr std::uint64_t kPackets = 1'000'000;

TEST(FaultsJudge, RatesHoldOverAMillionPackets) {
  for (const std::uint64_t seed : {1ULL, 7ULL, 0xffff'ffff'ffff'ffffULL}) {
    FaultConfig config = parse_faults("drop=1%,dup=0.5%,reorder=2%,corrupt=5%,ce=0.1%,delay=10%:1ms");
    config.seed = seed;
    std::array<std::uint64_t, 6> hits{};
    std::array<std::uint64_t, kMaxOvertaking + 1> overtaken{};
    for (std::uint64_t i = 0; i < kPackets; ++i) {
      const FaultVerdict v = judge(config, i, Opcode::kRcWriteMiddle);
      hits[0] += v.drop;
      hits[1] += v.duplicate;
      hits[2] += v.overtaken_by != 0;
      hits[3] += v.corrupt;
      hits[4] += v.congestion;
      hits[5] += v.hold == kMillisecond;
      ++overtaken[v.overtaken_by];
    }
    // A packet that is both delayed and reordered counts as delayed only.
    const std::array<double, 6> rates{0.01, 0.005, 0.02 * 0.9, 0.05, 0.001, 0.1};
    for (std::size_t i = 0; i < rates.size(); ++i) {
      const double mean = rates[i] * kPackets;
      EXPECT_NEAR(static_cast<double>(hits[i]), mean, 5 * std::sqrt(mean)) << "fault " << i << ", seed " << seed;
    }
    for (std::size_t n = 1; n <= kMaxOvertaking; ++n) EXPECT_GT(overtaken[n], hits[2] / 5) << n;
  }
}

TEST(FaultsJudge, SameSeedSameFate) {
  const FaultConfig config = parse_faults("drop=5%,dup=5%,reorder=5%,corrupt=5%,ce=5%,delay=5%:3us,seed=42");
  FaultConfig other = config;
  other.seed = 43;
  int differences = 0;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    const FaultVerdict a = judge(config, i, Opcode::kRcAck);
    const FaultVerdict b = judge(config, i, Opcode::kRcAck);
    ASSERT_EQ(a.drop, b.drop);
    ASSERT_EQ(a.corrupt_entropy, b.corrupt_entropy);
    ASSERT_EQ(a.hold, b.hold);
    differences += a.drop != judge(other, i, Opcode::kRcAck).drop;
  }
  EXPECT_GT(differences, 500);
}

TEST(FaultsJudge, AnotherFaultDoesNotMoveTheDrops) {
  const FaultConfig alone = parse_faults("drop=2%,seed=5");
  const FaultConfig crowd = parse_faults("drop=2%,dup=50%,reorder=50%,corrupt=50%,ce=50%,seed=5");
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    ASSERT_EQ(judge(alone, i, Opcode::kRcWriteOnly).drop, judge(crowd, i, Opcode::kRcWriteOnly).drop);
  }
}

/// Two faults at 1 % meet in 0.01 %: their streams are not the same numbers.
TEST(FaultsJudge, FaultsAreIndependent) {
  const FaultConfig config = parse_faults("drop=10%,corrupt=10%,dup=10%");
  std::uint64_t both = 0;
  for (std::uint64_t i = 0; i < kPackets; ++i) {
    const FaultVerdict v = judge(config, i, Opcode::kRcWriteOnly);
    both += v.drop && v.corrupt;
  }
  EXPECT_NEAR(static_cast<double>(both), 0.01 * kPackets, 500);
}

TEST(FaultsJudge, OtherOpcodesAreLeftAlone) {
  const FaultConfig config = parse_faults("drop=100%,dup=100%,delay=100%:1s,opcode=ACK");
  EXPECT_TRUE(judge(config, 0, Opcode::kRcAck).drop);
  const FaultVerdict other = judge(config, 0, Opcode::kRcWriteOnly);
  EXPECT_FALSE(other.drop || other.duplicate || other.hold != 0);
}

// ---- injector

struct Sink final : PacketSink {
  struct Sent {
    std::vector<std::byte> bytes;
    std::uint8_t tos;
    std::uint16_t source_port;
  };
  std::vector<Sent> sent;
  void send_packet(const OutPacket& packet) noexcept override {
    sent.push_back({{packet.bytes.begin(), packet.bytes.end()}, packet.tos, packet.source_port});
  }
  [[nodiscard]] std::vector<int> order() const {
    std::vector<int> ids;
    for (const Sent& s : sent) ids.push_back(std::to_integer<int>(s.bytes[1]));
    return ids;
  }
};

/// A WRITE Middle whose second byte is `id`.
std::vector<std::byte> packet_bytes(int id, std::size_t bytes = 64) {
  std::vector<std::byte> out(bytes, std::byte{0x55});
  out[0] = static_cast<std::byte>(Opcode::kRcWriteMiddle);
  out[1] = static_cast<std::byte>(id);
  return out;
}

void send(FaultInjector& injector, int id, Ps now, Sink& sink, std::uint8_t tos = 104 | 2) {
  const auto bytes = packet_bytes(id);
  injector.outgoing({.bytes = bytes, .destination = wire::Gid::from_ipv4(1), .source_port = 0xc001, .tos = tos}, now,
                    sink);
}

TEST(FaultInjector, WithoutFaultsPacketsPass) {
  FaultInjector injector(FaultConfig{});
  Sink sink;
  for (int id = 0; id < 100; ++id) send(injector, id, id, sink);
  ASSERT_EQ(sink.sent.size(), 100U);
  EXPECT_EQ(sink.sent[7].bytes, packet_bytes(7));
  EXPECT_EQ(sink.sent[7].tos, 104 | 2);
  EXPECT_EQ(sink.sent[7].source_port, 0xc001);
  EXPECT_EQ(injector.next_deadline(), kNever);
}

TEST(FaultInjector, Drops) {
  FaultInjector injector(parse_faults("drop=100%,dup=100%,delay=100%:1us"));
  Sink sink;
  send(injector, 1, 0, sink);
  injector.fire(kSecond, sink);
  EXPECT_TRUE(sink.sent.empty());
  EXPECT_EQ(injector.counters().dropped, 1U);
  EXPECT_EQ(injector.counters().duplicated, 0U);
}

TEST(FaultInjector, Duplicates) {
  FaultInjector injector(parse_faults("dup=100%"));
  Sink sink;
  send(injector, 1, 0, sink);
  EXPECT_EQ(sink.order(), (std::vector{1, 1}));
}

TEST(FaultInjector, MarksCongestionAndKeepsTheDscp) {
  FaultInjector injector(parse_faults("ce=100%"));
  Sink sink;
  send(injector, 1, 0, sink, 104 | 2);
  send(injector, 2, 0, sink, 104);
  EXPECT_EQ(sink.sent[0].tos, 104 | 3);
  EXPECT_EQ(sink.sent[1].tos, 104 | 3);
}

TEST(FaultInjector, CorruptsExactlyOneBitAnywhere) {
  FaultInjector injector(parse_faults("corrupt=100%"));
  Sink sink;
  for (int id = 0; id < 200; ++id) send(injector, id, 0, sink);
  std::vector<bool> seen(64);
  for (int id = 0; id < 200; ++id) {
    const auto good = packet_bytes(id);
    int bits = 0;
    for (std::size_t i = 0; i < good.size(); ++i) {
      const unsigned difference = std::to_integer<unsigned>(sink.sent[static_cast<std::size_t>(id)].bytes[i] ^ good[i]);
      bits += __builtin_popcount(difference);
      if (difference != 0) seen[i] = true;
    }
    ASSERT_EQ(bits, 1);
  }
  EXPECT_GT(std::count(seen.begin(), seen.end(), true), 50);
}

TEST(FaultInjector, DelayedPacketsLeaveAtTheirTime) {
  FaultInjector injector(parse_faults("delay=100%:200us"));
  Sink sink;
  send(injector, 1, 0, sink);
  send(injector, 2, 50 * kMicrosecond, sink);
  EXPECT_TRUE(sink.sent.empty());
  EXPECT_EQ(injector.next_deadline(), 200 * kMicrosecond);
  injector.fire(200 * kMicrosecond - 1, sink);
  EXPECT_TRUE(sink.sent.empty());
  injector.fire(200 * kMicrosecond, sink);
  EXPECT_EQ(sink.order(), std::vector{1});
  EXPECT_EQ(injector.next_deadline(), 250 * kMicrosecond);
  injector.fire(kSecond, sink);
  EXPECT_EQ(sink.order(), (std::vector{1, 2}));
  EXPECT_EQ(injector.next_deadline(), kNever);
  EXPECT_EQ(sink.sent[1].bytes, packet_bytes(2));
}

TEST(FaultInjector, ReorderedPacketsAreOvertakenButNotLost) {
  FaultInjector injector(parse_faults("reorder=20%,seed=3"));
  Sink sink;
  for (int id = 0; id < 250; ++id) send(injector, id, 0, sink);
  injector.fire(kReorderBound, sink);
  std::vector<int> order = sink.order();
  EXPECT_FALSE(std::ranges::is_sorted(order));
  for (std::size_t i = 0; i < order.size(); ++i) {
    EXPECT_LE(std::abs(order[i] - static_cast<int>(i)), static_cast<int>(kMaxOvertaking)) << i;
  }
  std::ranges::sort(order);
  ASSERT_EQ(order.size(), 250U);
  for (int id = 0; id < 250; ++id) EXPECT_EQ(order[static_cast<std::size_t>(id)], id);
}

TEST(FaultInjector, AReorderedLastPacketLeavesWithinItsBound) {
  FaultInjector injector(parse_faults("reorder=100%"));
  Sink sink;
  send(injector, 1, 0, sink);
  EXPECT_TRUE(sink.sent.empty());
  EXPECT_EQ(injector.next_deadline(), kReorderBound);
  injector.fire(kReorderBound, sink);
  EXPECT_EQ(sink.order(), std::vector{1});
}

TEST(FaultInjector, WhatWaitsIsBounded) {
  FaultInjector injector(parse_faults("delay=100%:1s"));
  Sink sink;
  for (std::size_t i = 0; i < FaultInjector::kCapacity + 10; ++i) send(injector, 1, 0, sink);
  EXPECT_EQ(sink.sent.size(), 10U) << "they leave at once rather than get lost";
  EXPECT_EQ(injector.counters().not_held, 10U);
  injector.fire(kSecond, sink);
  EXPECT_EQ(sink.sent.size(), FaultInjector::kCapacity + 10);
}

TEST(FaultInjector, TwoRunsAreTheSame) {
  const auto run = [] {
    FaultInjector injector(parse_faults("drop=5%,dup=5%,reorder=10%,corrupt=5%,delay=5%:3us,seed=12"));
    Sink sink;
    for (int id = 0; id < 2'000; ++id) {
      send(injector, id & 0xff, id * kMicrosecond, sink);
      injector.fire(id * kMicrosecond + 1, sink);
    }
    std::vector<std::vector<std::byte>> all;
    for (auto& s : sink.sent) all.push_back(std::move(s.bytes));
    return all;
  };
  EXPECT_EQ(run(), run());
}

}  // namespace
}  // namespace tensorwire::softhca
