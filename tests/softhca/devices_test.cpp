#include "softhca/devices.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "softhca/gid_table.hpp"

namespace tensorwire::softhca {
namespace {

using transport::MtuCode;

TEST(Devices, LoopbackIsSoft0AndNamesAreDistinct) {
  const std::vector<DeviceInfo> devices = list_devices();
  ASSERT_FALSE(devices.empty());
  EXPECT_EQ(devices[0].name, "soft0");
  EXPECT_TRUE(is_loopback(devices[0].ipv4));
  std::set<std::string> names;
  for (const DeviceInfo& device : devices) {
    EXPECT_TRUE(names.insert(device.name).second);
    EXPECT_NE(device.guid, 0U);
    EXPECT_EQ(is_loopback(device.ipv4), &device == &devices[0]) << "one loopback device";
  }
}

TEST(Devices, GuidIsStable) { EXPECT_EQ(list_devices()[0].guid, list_devices()[0].guid); }

TEST(Devices, MtuFollowsTheInterface) {
  EXPECT_EQ(active_mtu_for(65536), MtuCode::k4096);
  EXPECT_EQ(active_mtu_for(9000), MtuCode::k4096);
  EXPECT_EQ(active_mtu_for(4200), MtuCode::k4096);
  EXPECT_EQ(active_mtu_for(4000), MtuCode::k2048);
  EXPECT_EQ(active_mtu_for(1500), MtuCode::k1024);
  EXPECT_EQ(active_mtu_for(1400), MtuCode::k1024);
  EXPECT_EQ(active_mtu_for(1000), MtuCode::k512);
  EXPECT_EQ(active_mtu_for(300), MtuCode::k256);
}

TEST(Devices, PortOfLoopbackAndOfNothing) {
  const PortInfo lo = read_port(list_devices()[0].interface);
  EXPECT_TRUE(lo.active);
  EXPECT_EQ(lo.active_mtu, MtuCode::k4096);
  EXPECT_FALSE(read_port("no-such-if0").active);
}

class GidTables : public ::testing::Test {
 protected:
  const wire::Gid ipv4_ = wire::Gid::from_ipv4(0x0a000001);
  const wire::Gid link_local_ = *wire::parse_gid("fe80::1");
  const wire::Gid global_ = *wire::parse_gid("2001:db8::1");
  const wire::Gid other_ = *wire::parse_gid("2001:db8::2");
};

TEST_F(GidTables, V2OnlyHasLinkLocalIpv4AndOthers) {
  GidTable table(GidLayout::kV2Only);
  table.update(std::array{ipv4_, global_, link_local_});
  const auto gids = table.entries();
  ASSERT_EQ(gids.size(), GidTable::kAddresses);
  EXPECT_EQ(gids[0].gid, link_local_);
  EXPECT_EQ(gids[1].gid, ipv4_);
  EXPECT_EQ(gids[2].gid, global_);
  for (std::size_t i = 0; i < gids.size(); ++i) {
    EXPECT_TRUE(gids[i].roce_v2);
    EXPECT_EQ(gids[i].usable, i < 3);
    EXPECT_EQ(gids[i].gid.is_zero(), i >= 3);
  }
}

TEST_F(GidTables, ConnectXHasPairsOfWhichTheSecondCanBeUsed) {
  GidTable table(GidLayout::kConnectX);
  table.update(std::array{link_local_, ipv4_, global_});
  const auto gids = table.entries();
  ASSERT_EQ(gids.size(), 2 * GidTable::kAddresses);
  const std::array expected{link_local_, ipv4_, global_};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(gids[i].gid, expected[i / 2]);
    EXPECT_EQ(gids[i].roce_v2, i % 2 == 1);
    EXPECT_EQ(gids[i].usable, i % 2 == 1);
  }
}

TEST_F(GidTables, AnAddressKeepsItsIndexAndLeavesItEmpty) {
  GidTable table(GidLayout::kV2Only);
  table.update(std::array{ipv4_, global_, other_});
  table.update(std::array{other_, ipv4_});
  EXPECT_TRUE(table.entries()[0].gid.is_zero()) << "no link-local address";
  EXPECT_TRUE(table.entries()[2].gid.is_zero());
  EXPECT_EQ(table.entries()[3].gid, other_);
  table.update(std::array{link_local_, other_});
  EXPECT_EQ(table.entries()[0].gid, link_local_);
  EXPECT_TRUE(table.entries()[1].gid.is_zero()) << "the IPv4 address has gone, and nobody else may have its index";
  EXPECT_EQ(table.entries()[3].gid, other_);
}

TEST_F(GidTables, WhatIsTooManyIsLeftOut) {
  GidTable table(GidLayout::kV2Only);
  std::vector<wire::Gid> many{ipv4_};
  for (std::uint8_t i = 0; i < 100; ++i) {
    many.push_back(global_);
    many.back().bytes[15] = i;
  }
  table.update(many);
  const auto gids = table.entries();
  EXPECT_EQ(std::ranges::count_if(gids, &GidEntry::usable), static_cast<int>(GidTable::kAddresses) - 1);
  EXPECT_EQ(gids[1].gid, ipv4_);
}

}  // namespace
}  // namespace tensorwire::softhca
