#include "softhca/devices.hpp"

#include <gtest/gtest.h>

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

TEST(GidTable, V2OnlyHasIpv4AtOne) {
  const auto gids = make_gid_table(0x7f000001, GidLayout::kV2Only);
  ASSERT_EQ(gids.size(), 2U);
  EXPECT_TRUE(gids[0].gid.is_zero());
  EXPECT_EQ(gids[1].gid, wire::Gid::from_ipv4(0x7f000001));
  EXPECT_TRUE(gids[1].roce_v2 && gids[1].usable);
}

TEST(GidTable, ConnectXHasPairsAndIpv4AtTwoAndThree) {
  const auto gids = make_gid_table(0x7f000001, GidLayout::kConnectX);
  ASSERT_EQ(gids.size(), 4U);
  EXPECT_TRUE(gids[0].gid.is_zero() && gids[1].gid.is_zero());
  EXPECT_EQ(gids[2].gid, gids[3].gid);
  EXPECT_FALSE(gids[2].roce_v2 || gids[2].usable);
  EXPECT_TRUE(gids[3].roce_v2 && gids[3].usable);
}

}  // namespace
}  // namespace tensorwire::softhca
