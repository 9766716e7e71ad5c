#include "softhca/peer_socket.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "child_process.hpp"
#include "softhca/address_claim.hpp"
#include "softhca/shm_ring.hpp"

namespace tensorwire::softhca {
namespace {

/// An address of 127.0.0.0/8 that only this process uses.
std::uint32_t address_of_test() {
  const auto pid = static_cast<std::uint32_t>(::getpid());
  return (127U << 24) | ((128 + (pid >> 8) % 64) << 16) | ((pid & 0xff) << 8) | 1;
}

UniqueFd listen_at(std::uint32_t ipv4, int backlog) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  const socklen_t length = rendezvous_address(ipv4, 1, address);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
  EXPECT_EQ(::listen(fd.get(), backlog), 0);
  return fd;
}

std::uint64_t g_probe = 0;

Greeting greeting_of_this_process() {
  return {.sender = own_identity(),
          .address = wire::Gid::from_ipv4(address_of_test()),
          .ring_slots = kRingSlots,
          .slot_data_bytes = kSlotDataBytes,
          .probe = {reinterpret_cast<std::uint64_t>(&g_probe), g_probe},
          .withdrawals = 0x1234'5678'9abcULL};
}

// ---- greeting

TEST(Greeting, ComesBack) {
  const Greeting g = greeting_of_this_process();
  const auto back = decode_greeting(encode(g));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->version, kLocalProtocolVersion);
  EXPECT_EQ(back->sender.pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(back->sender.pid_namespace, g.sender.pid_namespace);
  EXPECT_NE(back->sender.pid_namespace, 0U);
  EXPECT_EQ(back->sender.boot_id, g.sender.boot_id);
  EXPECT_EQ(back->address, g.address);
  EXPECT_EQ(back->ring_slots, kRingSlots);
  EXPECT_EQ(back->slot_data_bytes, kSlotDataBytes);
  EXPECT_EQ(back->probe.address, g.probe.address);
  EXPECT_EQ(back->probe.value, g.probe.value);
  EXPECT_EQ(back->withdrawals, g.withdrawals);
}

TEST(Greeting, WrongMagicOrLengthIsNone) {
  auto bytes = encode(greeting_of_this_process());
  for (std::size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(decode_greeting(std::span(bytes).first(n))) << n;
  std::vector<std::byte> longer(bytes.begin(), bytes.end());
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_greeting(longer));
  for (std::size_t i = 0; i < 8; ++i) {
    auto bad = bytes;
    bad[i] ^= std::byte{1};
    EXPECT_FALSE(decode_greeting(bad)) << i;
  }
}

TEST(Greeting, AnotherVersionIsSeenWhateverFollows) {
  Greeting g = greeting_of_this_process();
  g.version = kLocalProtocolVersion + 1;
  const auto bytes = encode(g);
  const auto back = decode_greeting(std::span(bytes).first(20));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->version, g.version);
}

// ---- connecting

TEST(ConnectToPeer, NobodyThere) {
  const ConnectResult result = connect_to_peer(address_of_test(), 1, 500);
  EXPECT_FALSE(result.socket);
  EXPECT_EQ(result.error, ECONNREFUSED);
}

TEST(ConnectToPeer, AListenerThatAcceptsNobodyCostsTheBound) {
  const UniqueFd listener = listen_at(address_of_test(), 0);
  std::vector<ConnectResult> queued;
  int error = 0;
  const auto start = std::chrono::steady_clock::now();
  while (error == 0 && queued.size() < 100) {
    queued.push_back(connect_to_peer(address_of_test(), 1, 100));
    error = queued.back().error;
  }
  EXPECT_EQ(error, ETIMEDOUT);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
}

TEST(ConnectToPeer, AnotherUsersListenerGetsNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const UniqueFd listener = listen_at(address_of_test(), 4);
  const std::uint32_t address = address_of_test();
  ChildProcess child([&] {
    constexpr uid_t kNobody = 65534;
    return ::setresuid(kNobody, kNobody, kNobody) == 0 ? connect_to_peer(address, 1, 500).error : -1;
  });
  EXPECT_EQ(child.wait(), EACCES);
}

// ---- offers

/// Both ends of a connection as the listener of an HCA makes it.
struct Pair {
  UniqueFd listener = listen_at(address_of_test(), 4);
  UniqueFd sender = std::move(connect_to_peer(address_of_test(), 1, 500).socket);
  UniqueFd receiver{::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
  RingMemory memory = RingMemory::create();
  UniqueFd event_a{::eventfd(0, EFD_CLOEXEC)};
  UniqueFd event_b{::eventfd(0, EFD_CLOEXEC)};

  [[nodiscard]] int send(const Greeting& greeting) const {
    return send_offer(sender.get(), greeting, memory.fd(), event_a.get(), event_b.get());
  }
  [[nodiscard]] Offer receive() const {
    Offer offer;
    EXPECT_EQ(receive_offer(receiver.get(), offer), OfferStatus::kOk);
    return offer;
  }
};

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) != -1;
  return count;
}

TEST(Offer, ComesWithCredentialsAndDescriptors) {
  g_probe = 77;
  const Pair pair;
  ASSERT_EQ(pair.send(greeting_of_this_process()), 0);
  Offer offer = pair.receive();
  EXPECT_EQ(offer.pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(offer.uid, ::geteuid());
  EXPECT_EQ(check_offer(offer, own_identity()), Refusal::kNone);
  EXPECT_NE(offer.memory.get(), pair.memory.fd());
  ASSERT_TRUE(RingMemory::adopt(std::move(offer.memory)));
  ASSERT_EQ(::eventfd_write(offer.wake_consumer.get(), 3), 0);
  eventfd_t value = 0;
  ASSERT_EQ(::eventfd_read(pair.event_a.get(), &value), 0);
  EXPECT_EQ(value, 3U) << "the first eventfd wakes the consumer";
}

TEST(Offer, NotYetAndClosed) {
  Pair pair;
  Offer offer;
  EXPECT_EQ(receive_offer(pair.receiver.get(), offer), OfferStatus::kNotYet);
  pair.sender.reset();
  EXPECT_EQ(receive_offer(pair.receiver.get(), offer), OfferStatus::kClosed);
}

/// Sends `bytes` with any descriptors.
void send_raw(int socket, std::span<const std::byte> bytes, std::vector<int> fds) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  std::vector<std::byte> control(CMSG_SPACE(sizeof(int) * fds.size()));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(c), fds.data(), sizeof(int) * fds.size());
  }
  ASSERT_EQ(::sendmsg(socket, &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

TEST(Offer, MalformedOnesLeakNoDescriptor) {
  const Pair pair;
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const UniqueFd read_end(pipe_ends[0]);
  const UniqueFd write_end(pipe_ends[1]);
  const auto good = encode(greeting_of_this_process());
  auto bad_magic = good;
  bad_magic[0] ^= std::byte{1};
  const std::vector<std::byte> huge(4096);
  const int m = pair.memory.fd();
  const int e = pair.event_a.get();
  const int before = open_descriptors();
  const auto status_of = [&](std::span<const std::byte> bytes, std::vector<int> fds) {
    send_raw(pair.sender.get(), bytes, std::move(fds));
    Offer offer;
    return receive_offer(pair.receiver.get(), offer);
  };
  EXPECT_EQ(status_of(good, {m, e, e}), OfferStatus::kOk);
  EXPECT_EQ(status_of(bad_magic, {m, e, e}), OfferStatus::kMalformed);
  EXPECT_EQ(status_of(std::span(good).first(79), {m, e, e}), OfferStatus::kMalformed);
  EXPECT_EQ(status_of(huge, {m, e, e}), OfferStatus::kMalformed);
  EXPECT_EQ(status_of(good, {}), OfferStatus::kMalformed);
  EXPECT_EQ(status_of(good, {m, e}), OfferStatus::kMalformed);
  EXPECT_EQ(status_of(good, std::vector<int>(100, e)), OfferStatus::kMalformed);
  EXPECT_EQ(status_of(good, {m, e, write_end.get()}), OfferStatus::kMalformed) << "writing to a pipe may raise SIGPIPE";
  EXPECT_EQ(status_of(good, {m, pair.sender.get(), e}), OfferStatus::kMalformed);
  EXPECT_EQ(open_descriptors(), before);
}

// ---- checks

class CheckOffer : public testing::Test {
 protected:
  void SetUp() override {
    g_probe = 0xfeed;
    ASSERT_EQ(pair_.send(greeting_of_this_process()), 0);
    offer_ = pair_.receive();
    ASSERT_EQ(check(), Refusal::kNone);
  }
  Refusal check() { return check_offer(offer_, own_identity()); }
  Pair pair_;
  Offer offer_;
};

TEST_F(CheckOffer, Version) {
  ++offer_.greeting.version;
  EXPECT_EQ(check(), Refusal::kOtherVersion);
}
TEST_F(CheckOffer, User) {
  offer_.uid += 1;
  EXPECT_EQ(check(), Refusal::kOtherUser);
}
TEST_F(CheckOffer, PidNamespace) {
  offer_.greeting.sender.pid_namespace ^= 1;
  EXPECT_EQ(check(), Refusal::kOtherPidNamespace);
}
TEST_F(CheckOffer, BootId) {
  offer_.greeting.sender.boot_id[3] ^= std::byte{1};
  EXPECT_EQ(check(), Refusal::kOtherHost);
}
TEST_F(CheckOffer, ProcessIdThatIsNotVisibleOrNotTheOneItClaims) {
  offer_.pid = 0;
  EXPECT_EQ(check(), Refusal::kWrongProcessId);
  offer_.pid = static_cast<std::uint32_t>(::getppid());
  EXPECT_EQ(check(), Refusal::kWrongProcessId);
}
TEST_F(CheckOffer, Geometry) {
  offer_.greeting.ring_slots *= 2;
  EXPECT_EQ(check(), Refusal::kWrongGeometry);
  offer_.greeting.ring_slots /= 2;
  --offer_.greeting.slot_data_bytes;
  EXPECT_EQ(check(), Refusal::kWrongGeometry);
}
TEST_F(CheckOffer, Address) {
  offer_.greeting.address = {};
  EXPECT_EQ(check(), Refusal::kBadAddress);
}
TEST_F(CheckOffer, Probe) {
  ++offer_.greeting.probe.value;
  EXPECT_EQ(check(), Refusal::kWrongProbe);
  offer_.greeting.probe.address = 8;  // not mapped anywhere
  EXPECT_EQ(check(), Refusal::kWrongProbe);
}

/// A child whose probe word is its own, and whose memory the kernel lets us read, or not.
TEST(CheckOfferOfAChild, ProbeIsReadInItsMemory) {
  g_probe = 1;
  const UniqueFd listener = listen_at(address_of_test(), 4);
  const std::uint32_t address = address_of_test();
  Signal checked;
  ChildProcess child([&] {
    g_probe = 2;
    const ConnectResult connection = connect_to_peer(address, 1, 1000);
    const RingMemory memory = RingMemory::create();
    const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
    const int error =
        send_offer(connection.socket.get(), greeting_of_this_process(), memory.fd(), event.get(), event.get());
    checked.take();
    return error;
  });
  UniqueFd connection;
  for (int i = 0; i < 1000 && !connection; ++i, ::usleep(1000)) {
    connection = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  }
  Offer offer;
  OfferStatus status = OfferStatus::kNotYet;
  for (int i = 0; i < 1000 && status == OfferStatus::kNotYet; ++i, ::usleep(1000)) {
    status = receive_offer(connection.get(), offer);
  }
  ASSERT_EQ(status, OfferStatus::kOk);
  EXPECT_EQ(offer.pid, static_cast<std::uint32_t>(child.pid()));
  EXPECT_EQ(check_offer(offer, own_identity()), Refusal::kNone);
  offer.greeting.probe.value = 1;  // what stands there in our own memory
  EXPECT_EQ(check_offer(offer, own_identity()), Refusal::kWrongProbe);
  checked.give();
  EXPECT_EQ(child.wait(), 0);
}

TEST(Refusal, EveryReasonHasAText) {
  for (std::uint32_t r = 0; r <= static_cast<std::uint32_t>(Refusal::kTooManyChannels) + 3; ++r) {
    EXPECT_GT(text(static_cast<Refusal>(r)).size(), 5U) << r;
  }
  EXPECT_NE(text(Refusal::kPtracePolicy).find("yama"), std::string_view::npos);
}

}  // namespace
}  // namespace tensorwire::softhca
