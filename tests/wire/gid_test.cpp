#include "wire/gid.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/random.hpp"

namespace tensorwire::wire {
namespace {

TEST(Gid, MappedIpv4) {
  const Gid gid = Gid::from_ipv4(0x7f000001);
  EXPECT_TRUE(gid.is_ipv4());
  EXPECT_FALSE(gid.is_zero());
  EXPECT_FALSE(gid.is_link_local());
  EXPECT_EQ(gid.ipv4(), 0x7f000001U);
  EXPECT_EQ(to_string(gid), "::ffff:127.0.0.1");
  EXPECT_EQ(ipv4_text(0x7f000001), "127.0.0.1");
  EXPECT_EQ(ipv4_text(0), "0.0.0.0");
  EXPECT_EQ(ipv4_text(0xffffffff), "255.255.255.255");
}

TEST(Gid, ParsesTheThreeForms) {
  const Gid gid = Gid::from_ipv4(0x7f000001);
  EXPECT_EQ(parse_gid("127.0.0.1"), gid);
  EXPECT_EQ(parse_gid("::ffff:127.0.0.1"), gid);
  EXPECT_EQ(parse_gid("0000:0000:0000:0000:0000:ffff:7f00:0001"), gid);
  const auto link_local = parse_gid("fe80::1");
  ASSERT_TRUE(link_local);
  EXPECT_TRUE(link_local->is_link_local());
  EXPECT_FALSE(link_local->is_ipv4());
  EXPECT_EQ(to_string(*link_local), "fe80::1");
  EXPECT_TRUE(parse_gid("febf::1")->is_link_local());
  EXPECT_FALSE(parse_gid("fec0::1")->is_link_local());
  EXPECT_TRUE(parse_gid("::")->is_zero());
}

TEST(Gid, RefusesEverythingElse) {
  for (const std::string& text :
       {std::string(), std::string("127.0.0"), std::string("127.0.0.256"), std::string(" 127.0.0.1"), std::string(":"),
        std::string("fe80::1%lo"), std::string("1:2:3:4:5:6:7:8:9"), std::string("::1/64"), std::string("localhost"),
        std::string("127.0.0.1\0", 10), std::string(1000, '1')}) {
    EXPECT_FALSE(parse_gid(text)) << text;
  }
}

TEST(Gid, TextRoundTrips) {
  Random random(1);
  for (int i = 0; i < 5000; ++i) {
    Gid gid;
    // Many zero bytes, so that "::" is met in all places.
    for (auto& byte : gid.bytes)
      byte = random.below(3) == 0 ? static_cast<std::uint8_t>(random.next()) : std::uint8_t{0};
    ASSERT_EQ(parse_gid(to_string(gid)), gid) << to_string(gid);
    const Gid mapped = Gid::from_ipv4(static_cast<std::uint32_t>(random.next()));
    ASSERT_EQ(parse_gid(to_string(mapped)), mapped);
    ASSERT_EQ(parse_gid(ipv4_text(mapped.ipv4())), mapped);
  }
}

}  // namespace
}  // namespace tensorwire::wire
