// The same-host link between whole Hcas of two processes: what arrives, what is refused, and what happens when the
// other end misbehaves or dies.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <csignal>
#include <new>
#include <thread>

#include "base/random.hpp"
#include "endpoint.hpp"
#include "softhca/address_claim.hpp"
#include "softhca/child_process.hpp"
#include "softhca/local_record.hpp"
#include "softhca/peer_socket.hpp"

namespace tensorwire::softhca::testing {
namespace {

using namespace std::chrono_literals;
using transport::WcOpcode;
using transport::WcStatus;

constexpr std::uint32_t kBytes = 1 << 20;

/// What parent and child tell one another, in memory that both share.
struct Desk {
  Address parent, child;
  std::atomic<int> parent_there{0}, child_there{0}, child_error{0};
};

class SharedDesk {
 public:
  SharedDesk() {
    void* const at = ::mmap(nullptr, sizeof(Desk), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    desk_ = new (at) Desk;
  }
  SharedDesk(const SharedDesk&) = delete;
  SharedDesk& operator=(const SharedDesk&) = delete;
  ~SharedDesk() { ::munmap(desk_, sizeof(Desk)); }
  Desk* operator->() const { return desk_; }

 private:
  Desk* desk_;
};

void wait_for(const std::atomic<int>& flag) {
  for (int i = 0; i < 5000 && flag.load() == 0; ++i) std::this_thread::sleep_for(1ms);
}

/// An acknowledge timeout of 2 to 8 s: on a busy machine, too, what comes only after a retransmission fails the test.
Endpoint::Settings patient() {
  Endpoint::Settings settings;
  settings.timeout = 19;
  return settings;
}

/// The child's life: every message that arrives at offset x is written back to the parent's offset x, with the same
/// immediate. Ends when the parent kills it.
int echo(SharedDesk& desk, std::uint32_t address, Endpoint::Settings settings) {
  try {
    Endpoint self(open_at(loopback_device(), address, {}), settings);
    desk->child = self.address();
    desk->child_there = 1;
    wait_for(desk->parent_there);
    if (self.connect(desk->parent) != 0 || self.post_receives(settings.depth) != 0) return 2;
    desk->child_there = 2;
    for (;;) {
      const auto completion = self.next(30 * kSecond);
      if (!completion || completion->status != WcStatus::kSuccess) return 3;
      if (completion->opcode != WcOpcode::kRecvWithImm) continue;
      if (self.post_receives(1) != 0) return 4;
      if (self.write_imm(desk->parent, completion->immediate, completion->byte_len, completion->immediate) != 0) {
        return 5;
      }
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "child: %s\n", e.what());
    return 1;
  }
}

/// A parent endpoint connected to an echoing child. The child is made before the parent has threads.
class LocalLinkTest : public ::testing::Test {
 protected:
  void start(Endpoint::Settings child_settings = patient(), Endpoint::Settings parent_settings = patient()) {
    const std::uint32_t child_address = test_address(1);
    child_.emplace([&] { return echo(desk_, child_address, child_settings); });
    wait_for(desk_->child_there);
    parent_.emplace(open_at(loopback_device(), test_address(0), {}), parent_settings);
    desk_->parent = parent_->address();
    desk_->parent_there = 1;
    ASSERT_EQ(parent_->connect(desk_->child), 0);
    ASSERT_EQ(parent_->post_receives(64), 0);
    for (int i = 0; i < 5000 && desk_->child_there != 2; ++i) std::this_thread::sleep_for(1ms);
    ASSERT_EQ(desk_->child_there, 2);
  }

  [[nodiscard]] std::string link() const { return parent_->hca->link_description(parent_->qp); }

  /// One message there and back, through memory that is wiped in between.
  void expect_echo(std::uint32_t offset, std::uint32_t bytes) {
    Random random(offset * 7919U + bytes);
    std::vector<std::byte> sent(bytes);
    for (std::byte& b : sent) b = static_cast<std::byte>(random.next());
    std::ranges::copy(sent, parent_->memory.begin() + offset);
    ASSERT_EQ(parent_->post_receives(1), 0);
    ASSERT_EQ(parent_->write_imm(desk_->child, offset, bytes, offset), 0);
    for (int i = 0; i < 2; ++i) {  // our send and the echo, in either order
      const auto completion = parent_->next();
      ASSERT_TRUE(completion);
      ASSERT_EQ(completion->status, WcStatus::kSuccess);
      if (completion->opcode == WcOpcode::kRecvWithImm) {
        ASSERT_EQ(completion->byte_len, bytes);
        ASSERT_EQ(completion->immediate, offset);
      }
    }
    ASSERT_TRUE(std::equal(sent.begin(), sent.end(), parent_->memory.begin() + offset));
  }

  SharedDesk desk_;
  std::optional<ChildProcess> child_;
  std::optional<Endpoint> parent_;
};

TEST_F(LocalLinkTest, EverySizeArrivesWhole) {
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_EQ(link(), "same-host link");
  for (const std::uint32_t bytes : {0U, 1U, 8U, 71U, 72U, 73U, 511U, 512U, 513U, 4095U, 4096U, 4097U, 8192U, 65'536U,
                                    131'072U, 262'144U, 1'048'575U, 1'048'576U}) {
    SCOPED_TRACE(bytes);
    ASSERT_NO_FATAL_FAILURE(expect_echo(0, bytes));
  }
  Random random(9);
  for (int i = 0; i < 200; ++i) {
    const std::uint32_t bytes = random.below(1U << random.below(20));
    ASSERT_NO_FATAL_FAILURE(expect_echo(random.below(kBytes - bytes), bytes));
  }
  EXPECT_EQ(parent_->counter("retransmitted_packets"), 0U);
  EXPECT_GT(parent_->counter("local_rx_inline_bytes"), 0U);
  EXPECT_GT(parent_->counter("local_rx_pulled_bytes"), kBytes);
  EXPECT_EQ(parent_->counter("tx_sends"), 0U) << "not a datagram was needed";
}

TEST_F(LocalLinkTest, MessagesLongerThanOnePass) {
  Endpoint::Settings large = patient();
  large.bytes = 16 << 20;
  ASSERT_NO_FATAL_FAILURE(start(large, large));
  ASSERT_NO_FATAL_FAILURE(expect_echo(1, (16 << 20) - 1));
  ASSERT_NO_FATAL_FAILURE(expect_echo(0, 3'000'001));
}

TEST_F(LocalLinkTest, SleepersAreWoken) {
  ASSERT_NO_FATAL_FAILURE(start());
  Ps worst = 0;
  for (int i = 0; i < 50; ++i) {
    std::this_thread::sleep_for(3ms);
    const Ps before = monotonic_now();
    ASSERT_NO_FATAL_FAILURE(expect_echo(0, i % 2 == 0 ? 8 : 20'000));
    worst = std::max(worst, monotonic_now() - before);
  }
  EXPECT_LT(worst, 500 * kMillisecond) << "woken by a timer, if at all";
  EXPECT_EQ(parent_->counter("retransmitted_packets"), 0U);
}

/// An application that waits for its completion event makes no pass: the engine threads alone move the message.
TEST_F(LocalLinkTest, NobodyNeedsToPoll) {
  ASSERT_NO_FATAL_FAILURE(start());
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(3ms);
    parent_->events = 0;
    parent_->cq->arm(false);
    ASSERT_EQ(parent_->write_imm(desk_->child, 0, 8, 0), 0);
    const Ps before = monotonic_now();
    while (parent_->events == 0 && monotonic_now() - before < kSecond) std::this_thread::sleep_for(100us);
    ASSERT_NE(parent_->events, 0) << "round " << i;
    ASSERT_TRUE(parent_->next());
    ASSERT_TRUE(parent_->next());
    ASSERT_EQ(parent_->post_receives(1), 0);
  }
}

/// More messages than the ring has slots, towards a process that does not run: the path is blocked, nothing is lost.
TEST_F(LocalLinkTest, AFullRingWaits) {
  Endpoint::Settings deep = patient();
  deep.depth = 2048;
  ASSERT_NO_FATAL_FAILURE(start(deep, deep));
  ASSERT_EQ(parent_->post_receives(1500), 0);
  ASSERT_EQ(::kill(child_->pid(), SIGSTOP), 0);
  std::this_thread::sleep_for(2ms);
  for (std::uint32_t i = 0; i < 1500; ++i) ASSERT_EQ(parent_->write_imm(desk_->child, i * 8, 8, i * 8), 0);
  std::this_thread::sleep_for(20ms);
  ASSERT_EQ(::kill(child_->pid(), SIGCONT), 0);
  std::uint32_t sent = 0;
  std::uint32_t echoed = 0;
  while (sent + echoed < 3000) {
    const auto completion = parent_->next();
    ASSERT_TRUE(completion) << sent << " sent, " << echoed << " came back";
    ASSERT_EQ(completion->status, WcStatus::kSuccess);
    if (completion->opcode == WcOpcode::kRecvWithImm) {
      ASSERT_EQ(completion->immediate, 8 * echoed++);
    } else {
      ++sent;
    }
  }
  EXPECT_EQ(parent_->counter("retransmitted_packets"), 0U);
}

// ---- checks of the responder

class LocalLinkRefusal : public LocalLinkTest, public ::testing::WithParamInterface<std::uint32_t> {};

TEST_P(LocalLinkRefusal, WrongKey) {
  ASSERT_NO_FATAL_FAILURE(start());
  Address target = desk_->child;
  target.rkey ^= 1;
  ASSERT_EQ(parent_->write_imm(target, 0, GetParam(), 0), 0);
  const auto completion = parent_->next();
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->status, WcStatus::kRemoteAccessError);
}

TEST_P(LocalLinkRefusal, RangeThatEndsBeyondTheRegion) {
  ASSERT_NO_FATAL_FAILURE(start());
  Address target = desk_->child;
  target.buffer += kBytes - GetParam() + 1;
  ASSERT_EQ(parent_->write_imm(target, 0, GetParam(), 0), 0);
  const auto completion = parent_->next();
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->status, WcStatus::kRemoteAccessError);
}

TEST_P(LocalLinkRefusal, SourceMemoryThatVanishedAfterRegistration) {
  ASSERT_NO_FATAL_FAILURE(start());
  void* const at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  const auto address = reinterpret_cast<std::uint64_t>(at);
  std::uint32_t key = 0;
  ASSERT_EQ(parent_->hca->register_memory(parent_->pd, address, kBytes, address, transport::kAccessLocalWrite, key), 0);
  ::munmap(at, kBytes);
  const transport::Sge sge{address, GetParam(), key};
  transport::SendWr wr;
  wr.opcode = transport::WrOpcode::kWriteImm;
  wr.remote_address = desk_->child.buffer;
  wr.rkey = desk_->child.rkey;
  wr.sges = {&sge, 1};
  ASSERT_EQ(parent_->hca->post_send(parent_->qp, wr, false), 0);
  const auto completion = parent_->next();
  ASSERT_TRUE(completion);
  // Small payloads are read by the sender, larger ones by the responder.
  EXPECT_EQ(completion->status,
            GetParam() <= kSlotDataBytes ? WcStatus::kLocalProtectionError : WcStatus::kRemoteOperationError);
  EXPECT_EQ(parent_->hca->deregister_memory(key), 0);
}

INSTANTIATE_TEST_SUITE_P(InlineAndPulled, LocalLinkRefusal, ::testing::Values(8U, 100'000U));

// ---- death

TEST_F(LocalLinkTest, AKilledPeerEndsInRetryExceeded) {
  Endpoint::Settings quick;
  quick.timeout = 8;
  quick.retry_cnt = 3;
  ASSERT_NO_FATAL_FAILURE(start(quick, quick));
  ASSERT_NO_FATAL_FAILURE(expect_echo(0, 8));
  child_->end();
  ASSERT_EQ(parent_->write_imm(desk_->child, 0, 8, 0), 0);
  ASSERT_EQ(parent_->write_imm(desk_->child, 0, 100'000, 0), 0);
  const auto first = parent_->next(3 * kSecond);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->status, WcStatus::kRetryExceeded);
  const auto second = parent_->next();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->status, WcStatus::kFlushError);
}

TEST_F(LocalLinkTest, APeerKilledWhileItsRingIsFull) {
  Endpoint::Settings quick;
  quick.timeout = 8;
  quick.retry_cnt = 3;
  quick.depth = 1024;
  ASSERT_NO_FATAL_FAILURE(start(quick, quick));
  ASSERT_EQ(::kill(child_->pid(), SIGSTOP), 0);
  std::this_thread::sleep_for(2ms);
  for (int i = 0; i < 600; ++i) ASSERT_EQ(parent_->write_imm(desk_->child, 0, 8, 0), 0);
  child_->end();
  for (int i = 0; i < 600; ++i) {
    const auto completion = parent_->next(3 * kSecond);
    ASSERT_TRUE(completion);
    EXPECT_EQ(completion->status, i == 0 ? WcStatus::kRetryExceeded : WcStatus::kFlushError) << i;
  }
}

/// A child that a peer forked holds copies of its descriptors, which must not keep the channels open.
TEST_F(LocalLinkTest, AForkedChildDoesNotKeepItsParentsChannelsOpen) {
  const std::uint32_t address = test_address(1);
  ChildProcess peer([&] {
    try {
      Endpoint self(open_at(loopback_device(), address, {}), patient());
      desk_->child = self.address();
      desk_->child_there = 1;
      wait_for(desk_->parent_there);
      if (self.connect(desk_->parent) != 0) return 2;
      const pid_t grandchild = ::fork();
      if (grandchild == 0) {
        for (;;) ::pause();
      }
      desk_->child_error = grandchild;
      for (;;) ::pause();
    } catch (const std::exception&) {
      return 1;
    }
  });
  wait_for(desk_->child_there);
  parent_.emplace(open_at(loopback_device(), test_address(0), {}), patient());
  desk_->parent = parent_->address();
  desk_->parent_there = 1;
  ASSERT_EQ(parent_->connect(desk_->child), 0);
  wait_for(desk_->child_error);
  ASSERT_GT(desk_->child_error, 0);
  EXPECT_EQ(parent_->counter("local_channels_closed"), 0U);
  peer.end();
  for (int i = 0; i < 2000 && parent_->counter("local_channels_closed") == 0; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(parent_->counter("local_channels_closed"), 1U);
  ::kill(desk_->child_error, SIGKILL);
}

/// A peer that comes back under its old address is a new peer.
TEST_F(LocalLinkTest, ASuccessorOfAKilledPeerConnects) {
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_NO_FATAL_FAILURE(expect_echo(0, 50'000));
  child_->end();
  parent_.reset();
  desk_->child_there = 0;
  desk_->parent_there = 0;
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_EQ(link(), "same-host link");
  ASSERT_NO_FATAL_FAILURE(expect_echo(0, 50'000));
}

// ---- one process

TEST(LocalLinkInOneProcess, AnHcaTalksToItself) {
  const auto hca = open_at(loopback_device(), test_address(0), {});
  Endpoint a(hca);
  Endpoint b(hca);
  ASSERT_EQ(a.connect(b.address()), 0);
  ASSERT_EQ(b.connect(a.address()), 0);
  EXPECT_EQ(hca->link_description(a.qp), "same-host link");
  ASSERT_EQ(b.post_receives(16), 0);
  for (const std::uint32_t bytes : {0U, 8U, 5000U, kBytes}) {
    std::ranges::fill(a.memory, static_cast<std::byte>(bytes % 251 + 1));
    std::this_thread::sleep_for(2ms);  // let the engine thread fall asleep
    ASSERT_EQ(a.write_imm(b.address(), 0, bytes, 1), 0);
    const auto arrived = b.next();
    ASSERT_TRUE(arrived);
    EXPECT_EQ(arrived->byte_len, bytes);
    EXPECT_TRUE(std::equal(a.memory.begin(), a.memory.begin() + bytes, b.memory.begin()));
    ASSERT_TRUE(a.next());
  }
}

TEST(LocalLinkInOneProcess, TargetMemoryThatVanishedIsARemoteOperationalError) {
  for (const std::uint32_t bytes : {8U, 100'000U}) {
    Endpoint a(open_at(loopback_device(), test_address(0), {}));
    Endpoint b(open_at(loopback_device(), test_address(1), {}));
    ASSERT_EQ(a.connect(b.address()), 0);
    ASSERT_EQ(b.connect(a.address()), 0);
    ASSERT_EQ(b.post_receives(1), 0);
    void* const at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const auto address = reinterpret_cast<std::uint64_t>(at);
    Address target = b.address();
    target.buffer = address;
    ASSERT_EQ(b.hca->register_memory(b.pd, address, kBytes, address,
                                     transport::kAccessLocalWrite | transport::kAccessRemoteWrite, target.rkey),
              0);
    ::munmap(at, kBytes);
    ASSERT_EQ(a.write_imm(target, 0, bytes, 1), 0);
    const auto completion = a.next();
    ASSERT_TRUE(completion);
    EXPECT_EQ(completion->status, WcStatus::kRemoteOperationError);
    EXPECT_EQ(b.hca->deregister_memory(target.rkey), 0);
  }
}

// ---- peers that do not answer, refuse, or lie

/// A listener in place of an HCA: what it does with a connection is up to the test.
class NotAnHca : public ::testing::Test {
 protected:
  UniqueFd listen_at(std::uint32_t ipv4) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    const socklen_t length = rendezvous_address(ipv4, address);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(fd.get(), 8), 0);
    return fd;
  }

  /// Brings a queue pair towards the listener to RTR and returns what was chosen.
  std::string choice() {
    Endpoint a(open_at(loopback_device(), test_address(0), {}));
    const Ps before = monotonic_now();
    EXPECT_EQ(a.connect({.ipv4 = test_address(1), .qpn = 5}), 0);
    took_ = monotonic_now() - before;
    return a.hca->link_description(a.qp);
  }

  UniqueFd listener_ = listen_at(test_address(1));
  Ps took_ = 0;
};

TEST_F(NotAnHca, SilenceCostsItsBound) {
  EXPECT_EQ(choice(), "RoCEv2 packets (the peer process did not answer within 500 ms)");
  EXPECT_GE(took_, 490 * kMillisecond);
  EXPECT_LT(took_, 900 * kMillisecond);
}

TEST_F(NotAnHca, HangUpIsSeenAtOnce) {
  std::thread peer([&] { UniqueFd(::accept(listener_.get(), nullptr, nullptr)).reset(); });
  EXPECT_NE(choice().find("RoCEv2 packets (the peer process closed the connection"), std::string::npos);
  EXPECT_LT(took_, 300 * kMillisecond);
  peer.join();
}

TEST_F(NotAnHca, RefusalIsExplained) {
  std::thread peer([&] {
    const UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK));
    Offer offer;
    while (receive_offer(connection.get(), offer) == OfferStatus::kNotYet) std::this_thread::sleep_for(1ms);
    const auto memory = RingMemory::adopt(std::move(offer.memory));
    memory->layout().reason = static_cast<std::uint32_t>(Refusal::kPtracePolicy);
    memory->layout().answer = static_cast<std::uint32_t>(RingAnswer::kRefused);
    std::ignore = ::eventfd_write(offer.wake_producer.get(), 1);
  });
  EXPECT_NE(choice().find("yama.ptrace_scope"), std::string::npos);
  EXPECT_LT(took_, 300 * kMillisecond);
  peer.join();
}

/// A process that offers a ring by hand.
struct HandMadePeer {
  RingMemory memory = RingMemory::create();
  UniqueFd socket;
  UniqueFd wake_consumer{::eventfd(0, EFD_CLOEXEC)};
  UniqueFd wake_producer{::eventfd(0, EFD_CLOEXEC)};
  std::uint64_t probe = 99;

  explicit HandMadePeer(std::uint32_t target) : socket(std::move(connect_to_peer(target, 500).socket)) {}

  RingAnswer offer(const Greeting& greeting) {
    EXPECT_EQ(send_offer(socket.get(), greeting, memory.fd(), wake_consumer.get(), wake_producer.get()), 0);
    auto& answer = memory.layout().answer;
    for (int i = 0; i < 1000 && answer.load() == 0; ++i) std::this_thread::sleep_for(1ms);
    return static_cast<RingAnswer>(answer.load());
  }
  [[nodiscard]] Greeting greeting() const {
    return {.sender = own_identity(),
            .address = wire::Gid::from_ipv4(test_address(7)),
            .ring_slots = kRingSlots,
            .slot_data_bytes = kSlotDataBytes,
            .probe = {reinterpret_cast<std::uint64_t>(&probe), probe}};
  }
};

TEST(HostilePeer, WrongProbeIsRefused) {
  const Endpoint a(open_at(loopback_device(), test_address(0), {}));
  HandMadePeer peer(test_address(0));
  Greeting greeting = peer.greeting();
  ++greeting.probe.value;
  EXPECT_EQ(peer.offer(greeting), RingAnswer::kRefused);
  EXPECT_EQ(peer.memory.layout().reason, static_cast<std::uint32_t>(Refusal::kWrongProbe));
  EXPECT_EQ(a.counter("local_channels_refused"), 1U);
}

TEST(HostilePeer, AGreetingThatIsNoneClosesTheConnection) {
  const Endpoint a(open_at(loopback_device(), test_address(0), {}));
  const ConnectResult connection = connect_to_peer(test_address(0), 500);
  ASSERT_TRUE(connection.socket);
  ASSERT_EQ(::send(connection.socket.get(), "GET / HTTP/1.1", 14, 0), 14);
  char byte = 0;
  ssize_t n = -1;
  for (int i = 0; i < 1000 && n < 0; ++i, std::this_thread::sleep_for(1ms))
    n = ::recv(connection.socket.get(), &byte, 1, 0);
  EXPECT_EQ(n, 0);
  EXPECT_EQ(a.counter("local_malformed"), 1U);
}

/// Rings of garbage, of damaged records and of well-formed records that ask for what they may not have: each costs its
/// writer the channel or is refused by the engine, and an honest peer notices nothing.
TEST(HostilePeer, RandomRingContentsHarmNobody) {
  Endpoint a(open_at(loopback_device(), test_address(0), {}));
  Endpoint b(open_at(loopback_device(), test_address(1), {}));
  ASSERT_EQ(a.connect(b.address()), 0);
  ASSERT_EQ(b.connect(a.address()), 0);
  Random random(0xbad);
  for (int round = 0; round < 60; ++round) {
    HandMadePeer peer(test_address(0));
    ASSERT_EQ(peer.offer(peer.greeting()), RingAnswer::kReady);
    RingProducer ring(peer.memory);
    for (std::uint32_t i = 0; i < kRingSlots && ring.has_room(1); ++i) {
      transport::TxDesc desc;
      desc.headers.opcode = static_cast<wire::Opcode>(random.below(0x18));
      desc.headers.dest_qpn = random.chance(500'000) ? a.address().qpn : random.below(1 << 24);
      desc.headers.psn = random.below(1 << 24);
      desc.headers.va = a.address().buffer;
      desc.headers.rkey = random.chance(500'000) ? a.key : static_cast<std::uint32_t>(random.next());
      desc.headers.dma_length = random.below(kBytes);
      desc.piece_count = static_cast<std::uint8_t>(1 + random.below(3));
      for (std::size_t p = 0; p < desc.piece_count; ++p) {
        desc.pieces[p] = {nullptr, random.next(), random.below(100'000)};
        desc.payload_bytes += desc.pieces[p].length;
      }
      const RingSlot slot = ring.next_slot();
      if (wire::traits(desc.headers.opcode).payload) {
        encode_pulled(desc, slot);
      } else {
        std::ignore = encode_inline(desc.headers, 0, slot);
      }
      if (round % 3 == 1) slot.body[random.below(kSlotBodyBytes)] = static_cast<std::byte>(random.next());
      if (round % 3 == 2) {
        for (std::byte& byte : slot.body) byte = static_cast<std::byte>(random.next());
      }
      ring.publish();
    }
    if (round % 2 == 0) peer.memory.layout().freed = random.next();
    std::ignore = ::eventfd_write(peer.wake_consumer.get(), 1);
    std::this_thread::sleep_for(2ms);
  }
  EXPECT_GT(a.counter("local_malformed"), 15U);
  ASSERT_EQ(b.post_receives(1), 0);
  ASSERT_EQ(a.write_imm(b.address(), 0, 100'000, 1), 0);
  const auto arrived = b.next();
  ASSERT_TRUE(arrived);
  EXPECT_EQ(arrived->status, WcStatus::kSuccess);
}

}  // namespace
}  // namespace tensorwire::softhca::testing
