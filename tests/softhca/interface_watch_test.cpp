// What rtnetlink messages say of one interface; messages are made by hand, cut and broken ones too.
#include "softhca/interface_watch.hpp"

#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include <cstring>
#include <random>

namespace tensorwire::softhca {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int kOurs = 7;
constexpr unsigned kUp = IFF_UP | IFF_RUNNING;

template <typename Body>
Bytes message(std::uint16_t type, const Body& body, std::size_t attribute_bytes = 0) {
  const std::size_t size = NLMSG_HDRLEN + sizeof body + attribute_bytes;
  nlmsghdr header{};
  header.nlmsg_len = static_cast<std::uint32_t>(size);
  header.nlmsg_type = type;
  Bytes bytes((size + NLMSG_ALIGNTO - 1) / NLMSG_ALIGNTO * NLMSG_ALIGNTO, std::byte{0x5a});
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + NLMSG_HDRLEN, &body, sizeof body);
  return bytes;
}

Bytes link_message(std::uint16_t type, unsigned flags, int index = kOurs, unsigned char family = AF_UNSPEC) {
  ifinfomsg body{};
  body.ifi_family = family;
  body.ifi_index = index;
  body.ifi_flags = flags;
  return message(type, body, 41);
}

Bytes address_message(std::uint16_t type, int index = kOurs, unsigned char family = AF_INET) {
  ifaddrmsg body{};
  body.ifa_family = family;
  body.ifa_index = static_cast<std::uint32_t>(index);
  return message(type, body, 16);
}

Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

InterfaceChanges parse(const Bytes& bytes) { return parse_changes(bytes, kOurs); }

TEST(ParseChanges, NothingSaysNothing) { EXPECT_EQ(parse({}), InterfaceChanges{}); }

TEST(ParseChanges, LinkStateNeedsUpAndCarrier) {
  EXPECT_EQ(parse(link_message(RTM_NEWLINK, kUp)), (InterfaceChanges{.running = true}));
  for (const unsigned flags : {0U, unsigned{IFF_UP}, unsigned{IFF_RUNNING}}) {
    EXPECT_EQ(parse(link_message(RTM_NEWLINK, flags)), (InterfaceChanges{.running = false, .stopped = true}));
  }
  EXPECT_EQ(parse(link_message(RTM_DELLINK, kUp)), (InterfaceChanges{.running = false, .stopped = true}));
}

TEST(ParseChanges, AShortOutageIsNotLost) {
  EXPECT_EQ(parse(link_message(RTM_NEWLINK, 0) + link_message(RTM_NEWLINK, kUp)),
            (InterfaceChanges{.running = true, .stopped = true}));
}

TEST(ParseChanges, AddressesComeAndGo) {
  EXPECT_EQ(parse(address_message(RTM_NEWADDR)), (InterfaceChanges{.address_added = true}));
  EXPECT_EQ(parse(address_message(RTM_DELADDR)), (InterfaceChanges{.address_removed = true}));
  EXPECT_EQ(parse(address_message(RTM_DELADDR) + address_message(RTM_NEWADDR)),
            (InterfaceChanges{.address_added = true, .address_removed = true}));
  EXPECT_EQ(parse(address_message(RTM_NEWADDR, kOurs, AF_INET6)), (InterfaceChanges{.ipv6_changed = true}));
  EXPECT_EQ(parse(address_message(RTM_DELADDR, kOurs, AF_INET6)), (InterfaceChanges{.ipv6_changed = true}));
}

TEST(ParseChanges, WhatIsNotOursSaysNothing) {
  EXPECT_EQ(parse(link_message(RTM_NEWLINK, 0, kOurs + 1)), InterfaceChanges{});
  EXPECT_EQ(parse(link_message(RTM_DELLINK, 0, kOurs, AF_BRIDGE)), InterfaceChanges{});
  EXPECT_EQ(parse(address_message(RTM_DELADDR, kOurs + 1)), InterfaceChanges{});
  EXPECT_EQ(parse(address_message(RTM_DELADDR, kOurs, AF_PACKET)), InterfaceChanges{});
  EXPECT_EQ(parse(link_message(RTM_NEWNEIGH, 0)), InterfaceChanges{});
}

TEST(ParseChanges, AnOverrunIsIncomplete) {
  EXPECT_EQ(parse(link_message(NLMSG_OVERRUN, 0)), (InterfaceChanges{.incomplete = true}));
}

TEST(ParseChanges, EveryCutIsIncompleteAndWhatStandsBeforeCounts) {
  const Bytes first = link_message(RTM_NEWLINK, kUp);
  const Bytes second = address_message(RTM_DELADDR);
  for (std::size_t size = 1; size < second.size(); ++size) {
    const Bytes cut = first + Bytes(second.begin(), second.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(parse(cut), (InterfaceChanges{.running = true, .incomplete = true})) << size;
  }
}

TEST(ParseChanges, LastMessageNeedsNoPadding) {
  Bytes bytes = link_message(RTM_NEWLINK, kUp);  // 41 bytes of attributes: three of padding
  bytes.resize(bytes.size() - 3);
  EXPECT_EQ(parse(bytes), (InterfaceChanges{.running = true}));
}

TEST(ParseChanges, AMessageShorterThanItsFixedPartIsIncomplete) {
  for (const std::uint16_t type : {RTM_NEWLINK, RTM_DELADDR}) {
    EXPECT_EQ(parse(message(type, std::uint32_t{0})), (InterfaceChanges{.incomplete = true}));
  }
}

TEST(ParseChanges, ALengthBelowTheHeaderEnds) {
  Bytes bytes = link_message(RTM_NEWLINK, kUp);
  for (std::uint32_t length = 0; length < sizeof(nlmsghdr); ++length) {
    std::memcpy(bytes.data(), &length, sizeof length);
    EXPECT_EQ(parse(bytes), (InterfaceChanges{.incomplete = true})) << length;
  }
}

/// Every read stays inside: AddressSanitizer and the exact allocation say so.
TEST(ParseChanges, AnyBytesAreSurvived) {
  std::mt19937 random(20);
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = link_message(RTM_NEWLINK, kUp) + address_message(RTM_NEWADDR) + link_message(RTM_DELLINK, 0);
    for (int i = 0; i < 4; ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    bytes.resize(random() % (bytes.size() + 1));
    bytes.shrink_to_fit();
    const InterfaceChanges changes = parse(bytes);
    EXPECT_TRUE(changes.running != false || changes.stopped);
  }
}

TEST(AnswersTo, LoopbackHasItsSubnetOthersTheirAddress) {
  constexpr InterfaceAddress kLoopback{.ipv4 = 0x7f000001, .netmask = 0xff000000};
  EXPECT_TRUE(answers_to(kLoopback, 0x7f000001));
  EXPECT_TRUE(answers_to(kLoopback, 0x7f0a0b0c));
  EXPECT_FALSE(answers_to({.ipv4 = 0x7f000001, .netmask = 0xffffffff}, 0x7f000002));
  EXPECT_TRUE(answers_to({.ipv4 = 0x0a090001, .netmask = 0xffffff00}, 0x0a090001));
  EXPECT_FALSE(answers_to({.ipv4 = 0x0a090001, .netmask = 0xffffff00}, 0x0a090002));
}

}  // namespace
}  // namespace tensorwire::softhca
