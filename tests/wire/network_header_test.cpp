// The 40 bytes before a datagram's payload: an IPv4 header in the last 20, or an IPv6 header.
#include "wire/network_header.hpp"

#include <gtest/gtest.h>

#include <array>

#include "base/bytes.hpp"
#include "wire/frame.hpp"

namespace tensorwire::wire {
namespace {

using Bytes = std::array<std::byte, kNetworkHeaderBytes>;

TEST(NetworkHeader, Ipv4StandsInTheLastTwentyBytes) {
  const NetworkHeader header{.source = Gid::from_ipv4(0xc0a80102),
                             .destination = Gid::from_ipv4(0x0a000001),
                             .traffic_class = 0x68,
                             .hop_limit = 7};
  Bytes bytes;
  bytes.fill(std::byte{0xee});
  encode_network_header(header, 100, bytes);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(bytes[i], std::byte{0}) << i;
  const std::byte* ip = bytes.data() + 20;
  EXPECT_EQ(ip[0], std::byte{0x45});
  EXPECT_EQ(ip[1], std::byte{0x68});
  EXPECT_EQ(load_be16(ip + 2), 20 + 8 + 100);
  EXPECT_EQ(ip[8], std::byte{7});
  EXPECT_EQ(ip[9], std::byte{17});
  EXPECT_EQ(internet_checksum({ip, 20}), 0);
  EXPECT_EQ(load_be32(ip + 12), 0xc0a80102U);
  EXPECT_EQ(load_be32(ip + 16), 0x0a000001U);

  const auto parsed = parse_network_header(bytes);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->source, header.source);
  EXPECT_EQ(parsed->destination, header.destination);
  EXPECT_EQ(parsed->traffic_class, 0x68);
  EXPECT_EQ(parsed->hop_limit, 7);
}

TEST(NetworkHeader, Ipv6FillsTheFortyBytes) {
  const NetworkHeader header{.source = *parse_gid("fe80::1"),
                             .destination = *parse_gid("2001:db8::2"),
                             .traffic_class = 0xab,
                             .hop_limit = 64,
                             .flow_label = 0x54321};
  Bytes bytes;
  encode_network_header(header, 100, bytes);
  EXPECT_EQ(load_be32(bytes.data()), 0x6ab54321U);
  EXPECT_EQ(load_be16(bytes.data() + 4), 108);
  EXPECT_EQ(bytes[6], std::byte{17});
  const auto parsed = parse_network_header(bytes);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->source, header.source);
  EXPECT_EQ(parsed->destination, header.destination);
  EXPECT_EQ(parsed->traffic_class, 0xab);
  EXPECT_EQ(parsed->flow_label, 0x54321U);
}

TEST(NetworkHeader, OtherBytesAreNeither) {
  Bytes bytes{};
  EXPECT_FALSE(parse_network_header(bytes));
  encode_network_header({.source = Gid::from_ipv4(1), .destination = Gid::from_ipv4(2)}, 32, bytes);
  bytes[25] ^= std::byte{1};  // the checksum finds it
  EXPECT_FALSE(parse_network_header(bytes));
}

}  // namespace
}  // namespace tensorwire::wire
