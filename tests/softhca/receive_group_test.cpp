// How packets find their process: the program in the kernel, and who asks whom for its place when.
#include "softhca/receive_group.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "base/random.hpp"
#include "base/unique_fd.hpp"
#include "softhca/socket_address.hpp"

namespace tensorwire::softhca {
namespace {

TEST(Probe, ComesBackAndNothingElseIsOne) {
  const Probe probe{.index = 254, .asker = 7, .round = 0xdeadbeef};
  const auto bytes = encode_probe(probe);
  const auto back = parse_probe(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->index, 254);
  EXPECT_EQ(back->asker, 7);
  EXPECT_EQ(back->round, 0xdeadbeefU);
  EXPECT_FALSE(parse_probe(std::span{bytes}.first(bytes.size() - 1)));
  auto other = bytes;
  other[8] ^= std::byte{1};
  EXPECT_FALSE(parse_probe(other));
  EXPECT_FALSE(wire::traits(std::to_integer<std::uint8_t>(kProbeOpcode)).known);
}

/// A real group of sockets on a loopback address.
class Group : public ::testing::Test {
 protected:
  static constexpr std::uint16_t kPort = 4790;

  void SetUp() override {
    const auto pid = static_cast<std::uint32_t>(::getpid());
    gid_ = wire::Gid::from_ipv4(0x7fc8'0001 | (pid & 0xff) << 8 | ((pid >> 8) & 7) << 16);
  }

  UniqueFd join() {
    UniqueFd fd{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    const int on = 1;
    EXPECT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), 0);
    const SocketAddress at{gid_, kPort, 0};
    EXPECT_EQ(::bind(fd.get(), at.data(), at.size()), 0);
    return fd;
  }

  /// Which of `members` gets `bytes`; -1: none.
  int receiver_of(std::span<const std::byte> bytes, const std::vector<UniqueFd>& members) {
    const UniqueFd sender{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    const SocketAddress to{gid_, kPort, 0};
    EXPECT_GE(::sendto(sender.get(), bytes.data(), bytes.size(), 0, to.data(), to.size()), 0);
    std::vector<pollfd> waiting;
    for (const UniqueFd& fd : members) waiting.push_back({fd.get(), POLLIN, 0});
    if (::poll(waiting.data(), waiting.size(), 1000) != 1) return -1;
    const auto ready = std::ranges::find_if(waiting, [](const pollfd& p) { return p.revents != 0; });
    std::array<std::byte, 100> buffer;
    EXPECT_EQ(::recv(ready->fd, buffer.data(), buffer.size(), 0), static_cast<ssize_t>(bytes.size()));
    return static_cast<int>(ready - waiting.begin());
  }

  int receiver_of_slot(std::uint8_t slot, const std::vector<UniqueFd>& members) {
    std::array<std::byte, 20> packet{};
    packet[0] = std::byte{0x11};
    packet[kBthSlotOffset] = std::byte{slot};
    return receiver_of(packet, members);
  }

  wire::Gid gid_;
};

TEST_F(Group, TheProgramSortsBySlotAndProbesByIndex) {
  std::vector<UniqueFd> members;
  for (int i = 0; i < 5; ++i) members.push_back(join());
  Places places;
  const std::array<std::uint8_t, 5> slots{200, 3, 255, 1, 77};
  for (std::uint8_t i = 0; i < slots.size(); ++i) places[slots[i]] = i;
  ASSERT_EQ(attach(members[2].get(), dispatch_program(places)), 0);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(receiver_of_slot(slots[static_cast<std::size_t>(i)], members), i);
      EXPECT_EQ(receiver_of(encode_probe({.index = static_cast<std::uint8_t>(i)}), members), i);
    }
  }
  EXPECT_GE(receiver_of_slot(9, members), 0) << "who is not known gets to somebody";
  EXPECT_GE(receiver_of(encode_probe({.index = 5}), members), 0) << "and so does a probe beyond the end";
}

TEST_F(Group, TheLastMemberTakesThePlaceOfOneThatCloses) {
  std::vector<UniqueFd> members;
  for (int i = 0; i < 4; ++i) members.push_back(join());
  ASSERT_EQ(attach(members[0].get(), dispatch_program({})), 0);
  members.erase(members.begin() + 1);
  EXPECT_EQ(receiver_of(encode_probe({.index = 1}), members), 2) << "what was number 3";
  EXPECT_EQ(receiver_of(encode_probe({.index = 2}), members), 1);
}

TEST_F(Group, AFullProgramIsAccepted) {
  const UniqueFd member = join();
  Places places;
  for (std::size_t slot = kLowestSlot; slot <= kHighestSlot; ++slot) places[slot] = static_cast<std::uint8_t>(slot - 1);
  EXPECT_EQ(attach(member.get(), dispatch_program(places)), 0);
}

class Asking : public ::testing::Test {
 protected:
  using Due = ReceiveGroup::Due;

  /// A round in which `members` answer with these places, and its program.
  Places round(std::initializer_list<std::pair<std::uint8_t, std::uint8_t>> answers) {
    const std::uint32_t number = group_.ask(answers.size(), now_);
    bool complete = answers.size() == 0;
    for (const auto& [slot, index] : answers) complete = group_.on_answer(number, slot, index, now_);
    EXPECT_TRUE(complete);
    return group_.write(now_);
  }

  ReceiveGroup group_;
  Ps now_ = kSecond;
};

TEST_F(Asking, AllAnswersMakeAProgramAtOnce) {
  const std::uint32_t number = group_.ask(2, now_);
  EXPECT_EQ(group_.due(now_), Due::kNothing);
  EXPECT_FALSE(group_.on_answer(number, 9, 0, now_));
  EXPECT_FALSE(group_.on_answer(number, 9, 2, now_)) << "only its first answer counts: that is its place";
  EXPECT_FALSE(group_.on_answer(number - 1, 8, 1, now_)) << "of another round";
  EXPECT_TRUE(group_.on_answer(number, 8, 1, now_));
  const Places& places = group_.write(now_);
  EXPECT_EQ(places[9], 0);
  EXPECT_EQ(places[8], 1);
  EXPECT_FALSE(places[7]);
}

TEST_F(Asking, SilenceIsWaitedForOnlySoLongAndALateAnswerCounts) {
  const std::uint32_t number = group_.ask(3, now_);
  EXPECT_FALSE(group_.on_answer(number, 9, 0, now_));
  EXPECT_EQ(group_.next_deadline(), now_ + ReceiveGroup::kPatience);
  now_ += ReceiveGroup::kPatience;
  ASSERT_EQ(group_.due(now_), Due::kWrite);
  EXPECT_FALSE(group_.write(now_)[8]);
  EXPECT_TRUE(group_.on_answer(number, 8, 1, now_));
  EXPECT_EQ(group_.write(now_)[8], 1);
}

TEST_F(Asking, ANewcomerAsksTwice) {
  round({{9, 0}});
  EXPECT_EQ(group_.due(now_), Due::kNothing);
  now_ = group_.next_deadline();
  EXPECT_EQ(group_.due(now_), Due::kAsk);
  round({{9, 0}});
  EXPECT_EQ(group_.next_deadline(), kNever);
}

TEST_F(Asking, WhoIsSilentKeepsItsPlaceUnlessItIsTaken) {
  round({{9, 0}, {8, 1}, {7, 2}});
  const std::uint32_t number = group_.ask(3, now_);
  EXPECT_FALSE(group_.on_answer(number, 7, 1, now_));  // 8 has gone, 9 is asleep
  const Places& places = group_.write(now_ + ReceiveGroup::kPatience);
  EXPECT_EQ(places[7], 1);
  EXPECT_EQ(places[9], 0);
  EXPECT_FALSE(places[8]);
}

TEST_F(Asking, StraysMakeItAskButEverMoreRarelyWhileNothingChanges) {
  round({{9, 0}, {8, 1}});
  round({{9, 0}, {8, 1}});
  Ps pause = 0;
  for (int i = 0; i < 20; ++i) {
    group_.on_stray(now_);
    group_.on_stray(now_);
    const Ps at = group_.next_deadline();
    ASSERT_NE(at, kNever);
    EXPECT_GE(at - now_, pause);
    EXPECT_LE(at - now_, ReceiveGroup::kLongestPause);
    pause = at - now_;
    now_ = at;
    ASSERT_EQ(group_.due(now_), Due::kAsk);
    round({{9, 0}, {8, 1}});
    EXPECT_EQ(group_.next_deadline(), kNever) << "no stray, no question";
  }
  EXPECT_EQ(pause, ReceiveGroup::kLongestPause);
  group_.on_stray(now_);
  now_ = group_.next_deadline();
  round({{9, 1}, {8, 0}});
  group_.on_stray(now_);
  EXPECT_EQ(group_.next_deadline() - now_, ReceiveGroup::kShortestPause) << "a change makes it quick again";
}

}  // namespace
}  // namespace tensorwire::softhca
