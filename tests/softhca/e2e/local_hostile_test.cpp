// Peers on the same host that do not answer, refuse or lie: a queue pair towards them takes packets, and nothing that
// they write into a ring harms anybody else.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <thread>

#include "base/random.hpp"
#include "endpoint.hpp"
#include "softhca/address_claim.hpp"
#include "softhca/local_record.hpp"
#include "softhca/peer_socket.hpp"

namespace tensorwire::softhca::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kMemoryBytes = 1 << 20;

/// A listener in place of an HCA: what it does with a connection is up to the test.
class NotAnHca : public ::testing::Test {
 protected:
  UniqueFd listen_at(std::uint32_t ipv4) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    const socklen_t length = rendezvous_address(ipv4, 1, address);
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

  explicit HandMadePeer(std::uint32_t target) : socket(std::move(connect_to_peer(target, 1, 500).socket)) {}

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
            .probe = {reinterpret_cast<std::uint64_t>(&probe), probe},
            .withdrawals = reinterpret_cast<std::uint64_t>(&probe)};
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
  const ConnectResult connection = connect_to_peer(test_address(0), 1, 500);
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
      desc.headers.dma_length = random.below(kMemoryBytes);
      desc.withdrawals = random.next();
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
  EXPECT_EQ(arrived->status, transport::WcStatus::kSuccess);
}

}  // namespace
}  // namespace tensorwire::softhca::testing
