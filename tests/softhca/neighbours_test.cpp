// Messages between the processes of one address: what arrives is what was sent, and strangers are not heard.
#include "softhca/neighbours.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <optional>

#include "base/random.hpp"
#include "softhca/address_claim.hpp"
#include "softhca/child_process.hpp"

namespace tensorwire::softhca {
namespace {

class Two : public ::testing::Test {
 protected:
  static std::uint32_t address() { return 10U << 24 | (static_cast<std::uint32_t>(::getpid()) & 0xff'ffff); }

  static UniqueFd socket_of(std::uint8_t slot) {
    UniqueFd fd{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    sockaddr_un at{};
    const socklen_t length = neighbour_address(address(), slot, at);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), length), 0);
    const int on = 1;
    EXPECT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
    return fd;
  }

  [[nodiscard]] bool silent() { return std::holds_alternative<std::monostate>(b_.receive()); }

  Neighbours a_{socket_of(1), address()};
  Neighbours b_{socket_of(255), address()};
};

TEST_F(Two, AStrayArrivesWhole) {
  Random random(1);
  for (const std::size_t size : {1U, 20U, 4144U, 65'507U}) {
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
    const Stray sent{.flow = {*wire::parse_gid("fe80::1"), *wire::parse_gid("fe80::2"), 0xc123, 4791},
                     .tos = 106,
                     .first_packet = 63,
                     .segment_bytes = 4144,
                     .bytes = bytes};
    ASSERT_EQ(a_.send(255, sent), Neighbours::Sent::kYes);
    const auto message = b_.receive();
    const auto* got = std::get_if<Stray>(&message);
    ASSERT_NE(got, nullptr);
    EXPECT_EQ(got->flow.source, sent.flow.source);
    EXPECT_EQ(got->flow.destination, sent.flow.destination);
    EXPECT_EQ(got->flow.source_port, 0xc123);
    EXPECT_EQ(got->flow.destination_port, 4791);
    EXPECT_EQ(got->tos, 106);
    EXPECT_EQ(got->first_packet, 63);
    EXPECT_EQ(got->segment_bytes, 4144U);
    EXPECT_TRUE(std::ranges::equal(got->bytes, bytes));
  }
  EXPECT_TRUE(silent());
}

TEST_F(Two, AnAnswerArrives) {
  ASSERT_EQ(b_.send(1, PlaceAnswer{.gid = wire::Gid::from_ipv4(0x0a000001), .round = 77, .slot = 255, .index = 254}),
            Neighbours::Sent::kYes);
  const auto message = a_.receive();
  const auto* got = std::get_if<PlaceAnswer>(&message);
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->gid, wire::Gid::from_ipv4(0x0a000001));
  EXPECT_EQ(got->round, 77U);
  EXPECT_EQ(got->slot, 255);
  EXPECT_EQ(got->index, 254);
}

TEST_F(Two, MembersAreCountedAndWhoHasGoneIsNobody) {
  EXPECT_EQ(a_.count_members(), 2U);
  b_.close();
  EXPECT_EQ(a_.count_members(), 1U);
  EXPECT_EQ(a_.send(255, PlaceAnswer{}), Neighbours::Sent::kNobody);
}

TEST_F(Two, AFullQueueLosesAndDoesNotWait) {
  const std::vector<std::byte> bytes(60'000);
  const Stray stray{.segment_bytes = 4144, .bytes = bytes};
  int sent = 0;
  while (sent < 100'000 && a_.send(255, stray) == Neighbours::Sent::kYes) ++sent;
  EXPECT_GT(sent, 0);
  EXPECT_EQ(a_.send(255, stray), Neighbours::Sent::kLost);
  for (int i = 0; i < sent; ++i) ASSERT_TRUE(std::holds_alternative<Stray>(b_.receive()));
  EXPECT_TRUE(silent());
}

TEST_F(Two, NonsenseIsDropped) {
  Random random(2);
  const UniqueFd stranger{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  sockaddr_un to{};
  const socklen_t length = neighbour_address(address(), 255, to);
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::byte> bytes(random.below(60));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
    if (!bytes.empty()) bytes[0] = static_cast<std::byte>(random.below(4));
    ASSERT_GE(::sendto(stranger.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to), length),
              0);
    const auto message = b_.receive();  // does not crash; a stray without a packet or without a packet size is none
    if (const auto* stray = std::get_if<Stray>(&message)) {
      EXPECT_GT(stray->bytes.size(), 0U);
      EXPECT_GT(stray->segment_bytes, 0U);
    }
  }
}

TEST_F(Two, OtherUsersAreNotHeard) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::uint32_t ours = address();  // the child has another process id
  ChildProcess other([&] {
    constexpr uid_t kNobody = 65534;
    if (::setresuid(kNobody, kNobody, kNobody) != 0) return 2;
    const UniqueFd stranger{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    sockaddr_un to{};
    const socklen_t length = neighbour_address(ours, 255, to);
    std::array<std::byte, 24> answer{};
    answer[0] = std::byte{2};
    return ::sendto(stranger.get(), answer.data(), answer.size(), 0, reinterpret_cast<const sockaddr*>(&to), length) ==
                   static_cast<ssize_t>(answer.size())
               ? 0
               : 1;
  });
  ASSERT_EQ(other.wait(), 0);
  EXPECT_TRUE(silent());
}

}  // namespace
}  // namespace tensorwire::softhca
