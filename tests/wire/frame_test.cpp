#include "wire/frame.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>

#include "packets.hpp"

namespace tensorwire::wire {
namespace {

using testing::from_hex;
using testing::random_bytes;

constexpr std::size_t kIp = kEthernetBytes;
constexpr std::size_t kUdp = kEthernetBytes + kIpv4Bytes;

FrameInfo random_info(Random& random, bool ipv6 = false) {
  FrameInfo info;
  info.flow = testing::random_flow(random, ipv6);
  info.tos = static_cast<std::uint8_t>(random.next());
  info.ttl = static_cast<std::uint8_t>(random.next());
  if (!ipv6) info.ip_id = static_cast<std::uint16_t>(random.next());
  if (ipv6) info.flow_label = random.below(kFlowLabelMask + 1);
  return info;
}

std::vector<std::byte> make_frame(const FrameInfo& info, std::span<const std::byte> payload) {
  std::vector<std::byte> frame(kMaxFrameHeaderBytes);
  frame.resize(encode_frame_headers(info, payload, std::span(frame).first<kMaxFrameHeaderBytes>()));
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

std::vector<std::byte> with_vlan_tag(std::vector<std::byte> frame) {
  const auto tag = from_hex("81006064");  // priority 3, VLAN 100
  frame.insert(frame.begin() + 12, tag.begin(), tag.end());
  return frame;
}

void expect_same(const FrameInfo& a, const FrameInfo& b) {
  EXPECT_EQ(a.flow.source, b.flow.source);
  EXPECT_EQ(a.flow.destination, b.flow.destination);
  EXPECT_EQ(a.flow.source_port, b.flow.source_port);
  EXPECT_EQ(a.flow.destination_port, b.flow.destination_port);
  EXPECT_EQ(a.tos, b.tos);
  EXPECT_EQ(a.ttl, b.ttl);
  EXPECT_EQ(a.ip_id, b.ip_id);
  EXPECT_EQ(a.flow_label, b.flow_label);
}

/// Parses a copy in a heap block of exactly that size, so that AddressSanitizer sees an over-read. Only whether it
/// parsed and how many bytes are given back: the copy is gone.
std::optional<std::size_t> parse_exact(std::span<const std::byte> frame) {
  const auto copy = std::make_unique<std::byte[]>(frame.size());
  if (!frame.empty()) std::memcpy(copy.get(), frame.data(), frame.size());
  const auto parsed = parse_frame({copy.get(), frame.size()});
  if (!parsed) return std::nullopt;
  EXPECT_GE(parsed->udp_payload.data(), copy.get());
  EXPECT_LE(parsed->udp_payload.data() + parsed->udp_payload.size(), copy.get() + frame.size());
  return parsed->udp_payload.size();
}

TEST(Checksum, Rfc1071) {
  // The sum of the example in RFC 1071 section 3 is ddf2.
  EXPECT_EQ(internet_checksum(from_hex("0001f203f4f5f6f7")), static_cast<std::uint16_t>(~0xddf2U));
  EXPECT_EQ(internet_checksum({}), 0xffff);
  EXPECT_EQ(internet_checksum(from_hex("01")), 0xfeff) << "an odd last byte is the high one";
  EXPECT_EQ(internet_checksum(from_hex("ffffffff")), 0);
}

TEST(Checksum, Ipv4HeaderOfAKnownPacket) {
  auto header = from_hex("4502004c98c640004011207fc0a80007c0a80002");
  EXPECT_EQ(internet_checksum(header), 0) << "a header with its checksum sums to zero";
  header[10] = header[11] = std::byte{0};
  EXPECT_EQ(internet_checksum(header), 0x207f);
}

TEST(Frame, BytesOfAKnownPacket) {
  FrameInfo info;
  info.flow = ipv4_flow(0xc0a80007, 0xc0a80002, 0xc000, 4791);
  info.tos = 2;
  info.ip_id = 0x98c6;
  auto frame = make_frame(info, std::vector<std::byte>(0x38 - kUdpBytes));
  frame.resize(kEthernetBytes + kIpv4Bytes + kUdpBytes);
  EXPECT_EQ(frame, from_hex("0200c0a80002"
                            "0200c0a80007"
                            "0800"
                            "4502004c98c640004011207fc0a80007c0a80002"
                            "c00012b700380000"));
}

TEST(Frame, BytesOfAKnownIpv6Packet) {
  FrameInfo info;
  info.flow = {*parse_gid("fe80::1"), *parse_gid("fe80::2"), 0xc000, 4791};
  info.tos = 2;
  // The checksum by hand: fe80 + 1 + fe80 + 2 + length c + protocol 11 + c000 + 12b7 + c + 0102 + 0304 = 2d3e9.
  EXPECT_EQ(make_frame(info, from_hex("01020304")), from_hex("020600000002"
                                                             "020600000001"
                                                             "86dd"
                                                             "60200000000c1140"
                                                             "fe800000000000000000000000000001"
                                                             "fe800000000000000000000000000002"
                                                             "c00012b7000c2c14"
                                                             "01020304"));
}

/// RFC 8200 section 8.1: the words of pseudo header, UDP header and payload, the checksum included, sum to ones.
TEST(Frame, Ipv6ChecksumsAreRight) {
  Random random(6);
  for (int i = 0; i < 300; ++i) {
    const auto payload = random_bytes(random, random.below(3000));
    const auto frame = make_frame(random_info(random, true), payload);
    std::vector<std::byte> summed(frame.begin() + kIp + 8, frame.end());
    const std::uint64_t length_and_protocol = kUdpBytes + payload.size() + 17;
    EXPECT_EQ(internet_checksum(summed, length_and_protocol), 0);
  }
}

TEST(Frame, RoundTripsWithAndWithoutVlanTag) {
  Random random(1);
  for (int i = 0; i < 500; ++i) {
    const bool ipv6 = i % 2 != 0;
    const FrameInfo info = random_info(random, ipv6);
    const auto payload = random_bytes(random, i == 0 ? kMaxUdpPayloadBytes : random.below(5000));
    const auto frame = make_frame(info, payload);
    EXPECT_TRUE(ipv6 || internet_checksum({frame.data() + kIp, kIpv4Bytes}) == 0);
    for (const auto& variant : {frame, with_vlan_tag(frame)}) {
      const auto parsed = parse_frame(variant);
      ASSERT_TRUE(parsed);
      expect_same(parsed->info, info);
      ASSERT_TRUE(std::equal(payload.begin(), payload.end(), parsed->udp_payload.begin(), parsed->udp_payload.end()));
    }
  }
}

TEST(Frame, EthernetPaddingIsNotPayload) {
  Random random(2);
  for (const bool ipv6 : {false, true}) {
    auto frame = make_frame(random_info(random, ipv6), random_bytes(random, 5));
    frame.resize(80);
    EXPECT_EQ(parse_exact(frame), 5U);
  }
}

TEST(Frame, EveryTruncationIsRefused) {
  Random random(3);
  const auto frame = make_frame(random_info(random), random_bytes(random, 40));
  const auto frame6 = make_frame(random_info(random, true), random_bytes(random, 40));
  for (const auto& variant : {frame, with_vlan_tag(frame), frame6, with_vlan_tag(frame6)}) {
    ASSERT_EQ(parse_exact(variant), 40U);
    for (std::size_t n = 0; n < variant.size(); ++n) EXPECT_EQ(parse_exact({variant.data(), n}), std::nullopt) << n;
  }
}

TEST(Frame, RefusesWhatItDoesNotSpeak) {
  Random random(4);
  const auto good = make_frame(random_info(random), random_bytes(random, 40));
  const auto refuses = [&](std::size_t at, std::initializer_list<int> bytes) {
    auto frame = good;
    for (const int byte : bytes) frame[at++] = static_cast<std::byte>(byte);
    return !parse_exact(frame).has_value();
  };
  EXPECT_TRUE(refuses(12, {0x86, 0xdd})) << "an IPv4 packet that calls itself IPv6";
  EXPECT_TRUE(refuses(12, {0x08, 0x06})) << "ARP";
  EXPECT_TRUE(refuses(12, {0x81, 0x00})) << "a VLAN tag whose inner type is not IP";
  EXPECT_TRUE(refuses(kIp, {0x46})) << "IP options";
  EXPECT_TRUE(refuses(kIp, {0x65})) << "version 6";
  EXPECT_TRUE(refuses(kIp + 9, {6})) << "TCP";
  EXPECT_TRUE(refuses(kIp + 6, {0x20, 0x00})) << "first fragment";
  EXPECT_TRUE(refuses(kIp + 6, {0x00, 0x01})) << "later fragment";
  EXPECT_FALSE(refuses(kIp + 6, {0x00, 0x00})) << "DF is not demanded";
  EXPECT_TRUE(refuses(kIp + 2, {0, 27})) << "IP length below the headers";
  EXPECT_TRUE(refuses(kIp + 2, {0xff, 0xff})) << "IP length beyond the frame";
  EXPECT_TRUE(refuses(kUdp + 4, {0, 7})) << "UDP length below its header";
  EXPECT_TRUE(refuses(kUdp + 4, {0, 49})) << "UDP length beyond the IP packet";
  EXPECT_FALSE(refuses(kUdp + 4, {0, 8})) << "an empty datagram";
}

TEST(Frame, RefusesTheIpv6ThatItDoesNotSpeak) {
  Random random(7);
  const auto good = make_frame(random_info(random, true), random_bytes(random, 40));
  const auto refuses = [&](std::size_t at, std::initializer_list<int> bytes) {
    auto frame = good;
    for (const int byte : bytes) frame[at++] = static_cast<std::byte>(byte);
    return !parse_exact(frame).has_value();
  };
  constexpr std::size_t kUdpInIpv6 = kEthernetBytes + kIpv6Bytes;
  EXPECT_TRUE(refuses(kIp, {0x45})) << "version 4";
  EXPECT_TRUE(refuses(kIp + 6, {0})) << "an extension header";
  EXPECT_TRUE(refuses(kIp + 4, {0, 7})) << "payload length below the UDP header";
  EXPECT_TRUE(refuses(kIp + 4, {0, 49})) << "payload length beyond the frame";
  EXPECT_TRUE(refuses(kUdpInIpv6 + 4, {0, 49})) << "UDP length beyond the IP packet";
  EXPECT_FALSE(refuses(kUdpInIpv6 + 4, {0, 8})) << "an empty datagram";
}

TEST(Frame, RandomDamageNeverCrashes) {
  Random random(5);
  const auto good = with_vlan_tag(make_frame(random_info(random), random_bytes(random, 60)));
  const auto good6 = with_vlan_tag(make_frame(random_info(random, true), random_bytes(random, 60)));
  for (int i = 0; i < 100'000; ++i) {
    auto frame = i % 2 == 0 ? good : good6;
    for (std::uint32_t flips = 1 + random.below(4); flips > 0; --flips) {
      frame[random.below(static_cast<std::uint32_t>(frame.size()))] = static_cast<std::byte>(random.next());
    }
    frame.resize(random.below(static_cast<std::uint32_t>(frame.size() + 1)));
    (void)parse_exact(frame);
    (void)parse_exact(random_bytes(random, random.below(80)));
  }
}

}  // namespace
}  // namespace tensorwire::wire
