// Traffic under pressure: small buffers, faults, vanished memory, destruction, pauses, blocking consumers.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <thread>

#include "base/bytes.hpp"
#include "base/random.hpp"
#include "endpoint.hpp"
#include "wire/frame.hpp"
#include "wire/pcap.hpp"

namespace tensorwire::softhca::testing {
namespace {

using namespace std::chrono_literals;

/// A pair of connected endpoints at two addresses of this process.
struct Pair {
  Endpoint a, b;
  explicit Pair(Endpoint::Settings settings = {}, HcaOptions for_a = packets_only(), HcaOptions for_b = packets_only())
      : a(open_at(loopback_device(), test_address(0), std::move(for_a)), settings),
        b(open_at(loopback_device(), test_address(1), std::move(for_b)), settings) {
    if (a.connect(b.address()) != 0 || b.connect(a.address()) != 0) throw std::runtime_error("connect");
  }
};

void fill_random(std::span<std::byte> bytes, std::uint64_t seed) {
  Random random{seed};
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
}

/// Four ranks with stock receive buffers: three send 1 MiB each to the fourth at once. Overrunning the buffer would be
/// this HCA's own doing, so nothing may be dropped by the kernel and nothing sent twice.
TEST(SmallBuffer, ThreeSendersIntoAStockBufferLoseNothing) {
  constexpr std::uint32_t kBytes = 1 << 20;
  const auto small = [] {
    HcaOptions options = packets_only();
    options.receive_buffer = kStockReceiveBuffer;
    return options;
  };
  const auto hub = open_at(loopback_device(), test_address(0), small());
  std::vector<std::unique_ptr<Endpoint>> senders, sinks;
  for (std::uint32_t i = 0; i < 3; ++i) {
    senders.push_back(std::make_unique<Endpoint>(open_at(loopback_device(), test_address(i + 1), small())));
    sinks.push_back(std::make_unique<Endpoint>(hub));
    ASSERT_EQ(senders[i]->connect(sinks[i]->address()), 0);
    ASSERT_EQ(sinks[i]->connect(senders[i]->address()), 0);
    ASSERT_EQ(sinks[i]->post_receives(4), 0);
    fill_random(senders[i]->memory, i);
  }
  for (const int round : {1, 2, 3}) {
    for (std::size_t i = 0; i < 3; ++i) {
      ASSERT_EQ(senders[i]->write_imm(sinks[i]->address(), 0, kBytes, static_cast<std::uint32_t>(round)), 0);
    }
    for (std::size_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(sinks[i]->next());
      ASSERT_TRUE(senders[i]->next());
      EXPECT_EQ(senders[i]->memory, sinks[i]->memory);
    }
  }
  EXPECT_EQ(sinks[0]->counter("rx_discards"), 0U);
  for (const auto& sender : senders) EXPECT_EQ(sender->counter("retransmitted_packets"), 0U);
}

/// The receiver polls steadily, so its acknowledgements wait for its next call. Its last call is the one that ends it.
TEST(Acknowledgement, LeavesBeforeTheQueuePairGoes) {
  for (const bool destroyed : {true, false}) {
    SCOPED_TRACE(destroyed ? "destroyed" : "to the error state");
    constexpr std::uint32_t kMessages = 3000;
    Endpoint a{open_at(loopback_device(), test_address(0), packets_only())};
    std::optional<Endpoint> b(std::in_place, open_at(loopback_device(), test_address(1), packets_only()));
    const Address there = b->address();
    ASSERT_EQ(a.connect(there), 0);
    ASSERT_EQ(b->connect(a.address()), 0);
    ASSERT_EQ(b->post_receives(64), 0);
    std::thread receiver([&] {
      for (std::uint32_t i = 0; i < kMessages && b->next(); ++i) EXPECT_EQ(b->post_receives(1), 0);
      transport::QpAttr attr;
      attr.state = transport::QpState::kErr;
      if (destroyed) {
        b.reset();
      } else {
        EXPECT_EQ(b->hca->modify_qp(b->qp, attr, transport::kAttrState), 0);
      }
    });
    std::optional<transport::Completion> done;
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      if (a.write_imm(there, 0, 64, i) != 0 || !(done = a.next())) break;
    }
    receiver.join();
    ASSERT_TRUE(done);
    EXPECT_EQ(done->status, transport::WcStatus::kSuccess);
  }
}

class Faults : public ::testing::TestWithParam<const char*> {};

TEST_P(Faults, EveryByteStillArrives) {
  Endpoint::Settings settings;
  settings.timeout = 1;  // the floor of 20 ms decides
  Pair pair{settings, faulty(GetParam(), 1), faulty(GetParam(), 2)};
  fill_random(pair.a.memory, 5);
  constexpr std::uint32_t kMessages = 20, kBytes = 40'000;
  ASSERT_EQ(pair.b.post_receives(kMessages), 0);
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(pair.a.write_imm(pair.b.address(), i * kBytes, kBytes, i), 0);
  }
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    const auto arrived = pair.b.next(20 * kSecond);
    ASSERT_TRUE(arrived) << i;
    EXPECT_EQ(arrived->status, transport::WcStatus::kSuccess);
    EXPECT_EQ(arrived->immediate, i) << "in order, once each";
    const auto sent = pair.a.next(20 * kSecond);
    ASSERT_TRUE(sent);
    EXPECT_EQ(sent->status, transport::WcStatus::kSuccess);
  }
  EXPECT_TRUE(std::equal(pair.a.memory.begin(), pair.a.memory.begin() + kMessages * kBytes, pair.b.memory.begin()));
}

INSTANTIATE_TEST_SUITE_P(Rates, Faults,
                         ::testing::Values("drop=1%", "drop=5%", "dup=5%", "reorder=5%", "corrupt=5%",
                                           "drop=1%,dup=1%,reorder=1%,corrupt=1%", "delay=5%:200us", "late_dma=200us"));

/// Every tenth packet arrives marked: the receiver says so, the sender slows down and recovers, and nothing is lost.
TEST(Congestion, MarksSlowTheSenderDownAndCostNoByte) {
  for (const auto variant : {transport::DcqcnVariant::kPaper, transport::DcqcnVariant::kNic}) {
    const auto congested = [variant] {
      HcaOptions options = packets_only();
      options.dcqcn = variant;
      options.line_rate_mbps = 10'000;
      options.faults = std::make_unique<FaultInjector>(parse_faults("ce=10%"));
      return options;
    };
    Pair pair{{}, congested(), congested()};
    fill_random(pair.a.memory, 9);
    constexpr std::uint32_t kMessages = 20, kBytes = 50'000;
    ASSERT_EQ(pair.b.post_receives(kMessages), 0);
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      ASSERT_EQ(pair.a.write_imm(pair.b.address(), i * kBytes, kBytes, i), 0);
    }
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      ASSERT_TRUE(pair.b.next(20 * kSecond)) << i;
      ASSERT_TRUE(pair.a.next(20 * kSecond)) << i;
    }
    EXPECT_TRUE(std::equal(pair.a.memory.begin(), pair.a.memory.begin() + kMessages * kBytes, pair.b.memory.begin()));
    EXPECT_GT(pair.b.counter("np_ecn_marked_roce_packets"), 0U);
    EXPECT_GT(pair.b.counter("np_cnp_sent"), 0U);
    EXPECT_LE(pair.b.counter("np_cnp_sent"), pair.b.counter("np_ecn_marked_roce_packets"));
    EXPECT_GT(pair.a.counter("rp_cnp_handled"), 0U);
    EXPECT_EQ(pair.a.counter("rp_cnp_ignored"), 0U);
    EXPECT_EQ(pair.a.counter("retransmitted_packets"), 0U);
  }
}

TEST(Vanished, SourceThatWasUnmappedIsALocalErrorAndTargetARemoteOne) {
  if (kThreadSanitizer) GTEST_SKIP();
  constexpr std::size_t kBytes = 1 << 16;
  const auto map = [] { return mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); };
  for (const bool source : {true, false}) {
    SCOPED_TRACE(source ? "source" : "target");
    Pair pair;
    Endpoint& owner = source ? pair.a : pair.b;
    void* const memory = map();
    const auto at = reinterpret_cast<std::uint64_t>(memory);
    std::uint32_t key = 0;
    ASSERT_EQ(owner.hca->register_memory(owner.pd, at, kBytes, at,
                                         transport::kAccessLocalWrite | transport::kAccessRemoteWrite, key),
              0);
    munmap(memory, kBytes);

    const auto kept = reinterpret_cast<std::uint64_t>(pair.a.memory.data());
    const transport::Sge sge{source ? at : kept, kBytes, source ? key : pair.a.key};
    transport::SendWr wr;
    wr.opcode = transport::WrOpcode::kWrite;
    wr.remote_address = source ? pair.b.address().buffer : at;
    wr.rkey = source ? pair.b.key : key;
    wr.sges = {&sge, 1};
    ASSERT_EQ(pair.a.hca->post_send(pair.a.qp, wr, false), 0);
    const auto done = pair.a.next();
    ASSERT_TRUE(done);
    EXPECT_EQ(done->status,
              source ? transport::WcStatus::kLocalProtectionError : transport::WcStatus::kRemoteOperationError);
    EXPECT_EQ(owner.hca->deregister_memory(key), 0);
  }
}

TEST(Destroy, QueuePairsAndRegionsMayGoUnderTraffic) {
  Pair steady;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> delivered{0};
  ASSERT_EQ(steady.b.post_receives(64), 0);
  std::thread traffic{[&] {
    std::uint32_t i = 0;
    while (!stop) {
      if (steady.a.write_imm(steady.b.address(), 0, 50'000, i++) != 0) break;
      if (!steady.a.next() || !steady.b.next()) break;
      if (steady.b.post_receives(1) != 0) break;
      ++delivered;
    }
  }};
  for (int i = 0; i < 30; ++i) {
    Endpoint c{steady.a.hca}, d{steady.b.hca};
    ASSERT_EQ(c.connect(d.address()), 0);
    ASSERT_EQ(d.connect(c.address()), 0);
    ASSERT_EQ(d.post_receives(8), 0);
    for (std::uint32_t k = 0; k < 8; ++k) ASSERT_EQ(c.write_imm(d.address(), 0, 100'000, k), 0);
    // Gone with packets in flight both ways.
  }
  const std::uint64_t before = delivered;
  std::this_thread::sleep_for(50ms);
  EXPECT_GT(delivered.load(), before) << "the others' traffic goes on";
  stop = true;
  traffic.join();
}

TEST(Blocking, AConsumerThatWaitsForItsEventIsWoken) {
  Pair pair;
  // A receiver that sleeps; nobody polls for it.
  Endpoint& b = pair.b;
  ASSERT_EQ(b.post_receives(32), 0);
  for (std::uint32_t i = 0; i < 32; ++i) {
    b.cq->arm(false);
    const int before = b.events;
    ASSERT_EQ(pair.a.write_imm(b.address(), 0, 4096, i), 0);
    const Ps began = monotonic_now();
    while (b.events == before && monotonic_now() - began < kSecond) std::this_thread::sleep_for(200us);
    ASSERT_GT(b.events.load(), before) << "message " << i;
    EXPECT_LT(monotonic_now() - began, 200 * kMillisecond);
    ASSERT_TRUE(b.next());
  }
}

TEST(Blocking, MemoryThatSomebodyWatchesChangesWithoutAnyPoll) {
  Pair pair;
  const std::atomic_ref<std::byte> last{pair.b.memory[63]};
  for (std::uint32_t i = 1; i < 100; ++i) {
    pair.a.memory[63] = static_cast<std::byte>(i);
    ASSERT_EQ(pair.b.post_receives(1), 0);
    ASSERT_EQ(pair.a.write_imm(pair.b.address(), 0, 64, i, i % 32 == 0), 0);
    const Ps began = monotonic_now();
    while (last.load() != static_cast<std::byte>(i) && monotonic_now() - began < 2 * kSecond) sched_yield();
    ASSERT_TRUE(last.load() == static_cast<std::byte>(i)) << "write " << i;
  }
}

TEST(Idle, AnHcaThatNobodyUsesCostsNothing) {
  Pair pair;
  ASSERT_EQ(pair.b.post_receives(1), 0);
  ASSERT_EQ(pair.a.write_imm(pair.b.address(), 0, 4096, 1), 0);
  ASSERT_TRUE(pair.b.next());
  std::this_thread::sleep_for(100ms);
  const Ps before = process_cpu_time();
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(process_cpu_time() - before, 5 * kMillisecond);
}

/// The requester's process stops with everything in flight; what acknowledges it lies in its socket when it wakes. Its
/// timers are long due then, but the drain comes first.
TEST(Stopped, AProcessThatWasOffForFiftyMillisecondsSendsNothingAgain) {
  struct Shared {
    Address address[2];
    std::atomic<int> ready[2];
    std::atomic<std::uint64_t> messages;
    std::atomic<bool> stop;
    std::uint64_t retransmitted, timeouts;
  };
  auto* const shared =
      new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared{};
  const auto meet = [&](int rank, int step) {
    shared->ready[rank] = step;
    while (shared->ready[1 - rank] < step) std::this_thread::sleep_for(100us);
  };
  const std::uint32_t base = test_address(0);
  Endpoint::Settings settings;
  settings.timeout = 1;  // the floor decides: 20 ms

  const pid_t child = ::fork();
  if (child == 0) {
    Endpoint a{open_at(loopback_device(), base + 1, packets_only()), settings};
    shared->address[1] = a.address();
    meet(1, 1);
    const Address peer = shared->address[0];
    if (a.connect(peer) != 0) ::_exit(2);
    meet(1, 2);
    for (std::uint32_t i = 0; !shared->stop; ++i) {
      // Without an immediate: no receive is needed, so a sink that is slow to repost cannot ask for a retry.
      if (a.write(peer, 0, 20'000, i) != 0 || !a.next()) ::_exit(3);
      ++shared->messages;
    }
    shared->retransmitted = a.counter("retransmitted_packets");
    shared->timeouts = a.counter("local_ack_timeout_err");
    ::_exit(0);
  }
  Endpoint b{open_at(loopback_device(), base, packets_only()), settings};
  shared->address[0] = b.address();
  meet(0, 1);
  ASSERT_EQ(b.connect(shared->address[1]), 0);
  meet(0, 2);
  for (int i = 0; i < 10; ++i) {
    std::this_thread::sleep_for(20ms);
    ::kill(child, SIGSTOP);
    std::this_thread::sleep_for(50ms);
    ::kill(child, SIGCONT);
  }
  shared->stop = true;
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_GT(shared->messages.load(), 100U);
  EXPECT_EQ(shared->retransmitted, 0U);
  EXPECT_EQ(shared->timeouts, 0U);
}

/// With segment offload 64 packets leave in a few sends; without it each is a send of its own, and arrives all the
/// same.
TEST(SegmentOffload, SaysHowManyPacketsASendHolds) {
  for (const bool offload : {true, false}) {
    HcaOptions options = packets_only();
    options.segment_offload = offload;
    Pair pair{{}, std::move(options)};
    fill_random(pair.a.memory, 3);
    ASSERT_EQ(pair.b.post_receives(1), 0);
    ASSERT_EQ(pair.a.write_imm(pair.b.address(), 0, 262'144, 7), 0);
    ASSERT_TRUE(pair.b.next());
    ASSERT_TRUE(pair.a.next());
    EXPECT_TRUE(std::ranges::equal(std::span{pair.a.memory}.first(262'144), std::span{pair.b.memory}.first(262'144)));
    const std::uint64_t sends = pair.a.counter("tx_sends");
    if (offload) {
      EXPECT_LT(sends, 32U);
    } else {
      EXPECT_GE(sends, 64U);
    }
  }
}

/// Everything that leaves is in the capture, split into packets, each with a right ICRC under its own IP id.
TEST(Captured, EveryPacketIsThereAndRight) {
  const std::string path = ::testing::TempDir() + "softhca_capture." + std::to_string(::getpid()) + ".pcap";
  {
    HcaOptions options = packets_only();
    options.capture = std::make_shared<Capture>(path);
    Pair pair{{}, std::move(options)};
    ASSERT_EQ(pair.b.post_receives(1), 0);
    ASSERT_EQ(pair.a.write_imm(pair.b.address(), 0, 262'144, 7), 0);
    ASSERT_TRUE(pair.b.next());
    ASSERT_TRUE(pair.a.next());
  }
  std::size_t writes = 0, immediates = 0;
  for (const wire::PcapRecord& record : wire::read_pcap(path)) {
    const auto frame = wire::parse_frame(record.bytes);
    ASSERT_TRUE(frame);
    const std::span<const std::byte> bytes = frame->udp_payload;
    const std::size_t covered = bytes.size() - wire::kIcrcBytes;
    wire::Parsed parsed;
    if (wire::parse(bytes, parsed) != wire::ParseStatus::kOk) continue;  // a hello
    std::uint32_t crc = wire::icrc_begin(frame->info.flow, bytes.size(), frame->info.ip_id);
    crc = wire::icrc_headers(crc, bytes.first(parsed.header_bytes));
    crc = wire::crc_update(crc, bytes.subspan(parsed.header_bytes, covered - parsed.header_bytes));
    EXPECT_EQ(wire::icrc_finish(crc), load_le32(&bytes[covered]));
    if (wire::traits(parsed.headers.opcode).write) {
      ++writes;
      EXPECT_EQ(frame->info.tos, 104);
    }
    if (wire::traits(parsed.headers.opcode).immediate) ++immediates;
  }
  EXPECT_EQ(writes, 64U);
  EXPECT_EQ(immediates, 1U);
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace tensorwire::softhca::testing
