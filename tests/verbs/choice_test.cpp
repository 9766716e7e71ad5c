// The rules that choose device and GID: pure functions of plain facts.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "verbs/device_choice.hpp"
#include "verbs/gid.hpp"

namespace tensorwire::verbs {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

Gid gid(std::string_view text) {
  const auto parsed = parse_gid(text);
  EXPECT_TRUE(parsed) << text;
  return parsed.value_or(Gid{});
}

/// The table of a ConnectX port with an IPv4 and a global IPv6 address, and a VLAN interface.
std::vector<GidFacts> connectx() {
  return {{0, gid("fe80::1"), GidType::kRoceV1, "eth2"},      {1, gid("fe80::1"), GidType::kRoceV2, "eth2"},
          {2, gid("10.0.0.7"), GidType::kRoceV1, "eth2"},     {3, gid("10.0.0.7"), GidType::kRoceV2, "eth2"},
          {4, gid("2001:db8::7"), GidType::kRoceV1, "eth2"},  {5, gid("2001:db8::7"), GidType::kRoceV2, "eth2"},
          {6, gid("10.9.0.7"), GidType::kRoceV1, "eth2.100"}, {7, gid("10.9.0.7"), GidType::kRoceV2, "eth2.100"}};
}

std::string gid_error(const std::vector<GidFacts>& table, const GidWish& wish) {
  try {
    return "chose " + std::to_string(choose_gid("mlx5_0", table, wish).entry.index);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Gids, TextRoundTrip) {
  EXPECT_EQ(to_string(gid("127.0.0.1")), "::ffff:127.0.0.1");
  EXPECT_EQ(gid("0000:0000:0000:0000:0000:ffff:7f00:0001"), gid("127.0.0.1"));
  EXPECT_TRUE(gid("127.0.0.1").is_ipv4());
  EXPECT_FALSE(gid("2001:db8::1").is_ipv4());
  EXPECT_TRUE(gid("fe80::1").is_link_local());
  EXPECT_TRUE(gid("febf::1").is_link_local());
  EXPECT_FALSE(gid("fec0::1").is_link_local());
  EXPECT_TRUE(gid("169.254.3.4").is_link_local());
  EXPECT_FALSE(gid("169.253.3.4").is_link_local());
  EXPECT_FALSE(parse_gid("10.0.0"));
  EXPECT_FALSE(parse_gid(""));
}

TEST(GidChoice, AutomaticIsTheFirstRoutableIpv4OfVersion2) {
  const GidChoice choice = choose_gid("mlx5_0", connectx(), {});
  EXPECT_EQ(choice.entry.index, 3);
  EXPECT_HAS(choice.reason, "3 routable RoCE v2 entries");
}

TEST(GidChoice, TheOnlyOneSaysSo) {
  const std::vector<GidFacts> table{{0, gid("fe80::1"), GidType::kRoceV2, "lo"},
                                    {1, gid("127.0.0.1"), GidType::kRoceV2, "lo"}};
  const GidChoice choice = choose_gid("soft0", table, {});
  EXPECT_EQ(choice.entry.index, 1);
  EXPECT_EQ(choice.reason, "the only routable RoCE v2 entry");
}

TEST(GidChoice, TheRouteToThePeerDecidesBetweenInterfaces) {
  const GidChoice choice = choose_gid("mlx5_0", connectx(), {.index = {}, .route_netdev = "eth2.100"});
  EXPECT_EQ(choice.entry.index, 7);
  EXPECT_HAS(choice.reason, "eth2.100");
}

TEST(GidChoice, ARouteOverNoneOfItsInterfacesIsNoPreference) {
  EXPECT_EQ(choose_gid("mlx5_0", connectx(), {.index = {}, .route_netdev = "eth9"}).entry.index, 3);
}

TEST(GidChoice, Ipv6ServesWhereThereIsNoIpv4) {
  std::vector<GidFacts> table = connectx();
  std::erase_if(table, [](const GidFacts& entry) { return entry.gid.is_ipv4(); });
  EXPECT_EQ(choose_gid("mlx5_0", table, {}).entry.index, 5);
}

TEST(GidChoice, NothingRoutableIsAnError) {
  const std::vector<GidFacts> table{{0, gid("fe80::1"), GidType::kRoceV1, "eth2"},
                                    {1, gid("fe80::1"), GidType::kRoceV2, "eth2"},
                                    {2, gid("10.0.0.7"), GidType::kRoceV1, "eth2"},
                                    {3, gid("10.0.0.8"), GidType::kUnknown, ""}};
  EXPECT_HAS(gid_error(table, {}), "none of its 4 GIDs is a routable RoCE v2 address");
  EXPECT_HAS(gid_error({}, {}), "none of its 0 GIDs");
}

TEST(GidChoice, AnIndexAskedForIsTaken) {
  EXPECT_EQ(gid_error(connectx(), {.index = 5, .route_netdev = ""}), "chose 5");
  EXPECT_EQ(gid_error(connectx(), {.index = 1, .route_netdev = ""}), "chose 1")
      << "link-local on demand is the user's will";
}

TEST(GidChoice, AnIndexAskedForThatCannotServeIsAnErrorThatNamesTheGoodOnes) {
  for (const int index : {2, 4, 8, 200}) {
    const std::string error = gid_error(connectx(), {.index = index, .route_netdev = ""});
    EXPECT_HAS(error, "GID index " + std::to_string(index) + " of mlx5_0");
    EXPECT_HAS(error, index < 8 ? "RoCE v1, not RoCE v2" : "it is empty");
    EXPECT_HAS(error, "3 (::ffff:10.0.0.7), 5 (2001:db8::7), 7 (::ffff:10.9.0.7)");
  }
}

std::string device_error(const std::vector<DeviceFacts>& devices, std::string_view wanted) {
  try {
    return "chose " + choose_device(devices, wanted).device;
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(DeviceChoice, OursOnlyWhereThereIsNone) {
  const DeviceChoice choice = choose_device({}, "");
  EXPECT_EQ(choice.provider, Provider::kSoft);
  EXPECT_EQ(choice.reason, "no RDMA device on this host");
}

TEST(DeviceChoice, TheFirstUsableNic) {
  const DeviceChoice choice =
      choose_device(std::vector<DeviceFacts>{{"mlx5_0", "port 1 is DOWN"}, {"mlx5_1", ""}, {"mlx5_2", ""}}, "");
  EXPECT_EQ(choice.provider, Provider::kSystem);
  EXPECT_EQ(choice.device, "mlx5_1");
  EXPECT_EQ(choice.reason, "the first of 2 usable RDMA devices");
}

TEST(DeviceChoice, AnUnusableNicIsNeverReplacedSilently) {
  const std::vector<DeviceFacts> devices{{"mlx5_0", "port 1 is DOWN"}, {"mlx5_1", "open failed: EACCES"}};
  const std::string error = device_error(devices, "");
  EXPECT_HAS(error, "mlx5_0: port 1 is DOWN; mlx5_1: open failed: EACCES");
  EXPECT_HAS(error, "--device soft");
  EXPECT_HAS(device_error(devices, "mlx5_0"), "port 1 is DOWN");
}

TEST(DeviceChoice, SoftOnDemandWhateverElseThereIs) {
  const std::vector<DeviceFacts> devices{{"mlx5_0", ""}};
  EXPECT_EQ(choose_device(devices, "soft").provider, Provider::kSoft);
  EXPECT_EQ(choose_device(devices, "soft").device, "");
  EXPECT_EQ(choose_device(devices, "soft2").device, "soft2");
}

TEST(DeviceChoice, AnUnknownNameNamesTheKnownOnes) {
  EXPECT_HAS(device_error({{"mlx5_0", ""}, {"mlx5_1", ""}}, "mlx4_0"), "mlx5_0, mlx5_1");
  EXPECT_HAS(device_error({}, "mlx5_0"), "--device soft");
  EXPECT_EQ(device_error({{"mlx5_0", ""}, {"mlx5_1", ""}}, "mlx5_1"), "chose mlx5_1");
}

TEST(DeviceChoice, SoftNames) {
  EXPECT_TRUE(is_soft_name("soft"));
  EXPECT_TRUE(is_soft_name("soft12"));
  EXPECT_FALSE(is_soft_name("softroce"));
  EXPECT_FALSE(is_soft_name("rxe0"));
  EXPECT_FALSE(is_soft_name(""));
}

std::string soft_choice(const Route* route, bool has_peers_elsewhere, std::size_t devices = 3) {
  const std::vector<std::string> names{"soft0", "soft1", "soft2"};
  const auto look_at = [](const std::string& name) -> SoftDeviceFacts {
    if (name == "soft0") return {{{gid("127.0.0.1"), "lo"}}};
    if (name == "soft1") return {{{gid("10.0.0.7"), "eth0"}, {gid("fe80::7"), "eth0"}}};
    return {{{gid("10.1.0.7"), "eth1"}}};
  };
  try {
    return choose_soft_device(std::span(names).first(devices), look_at, route, has_peers_elsewhere);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(SoftDeviceChoice, IsLoopbackOnlyWhereAllPeersAreOnThisHost) {
  const Route local{gid("127.0.0.1"), "lo"};
  EXPECT_EQ(soft_choice(nullptr, false), "soft0");
  EXPECT_EQ(soft_choice(&local, false), "soft0");
  EXPECT_EQ(soft_choice(nullptr, true), "soft1");
  EXPECT_EQ(soft_choice(&local, true), "soft1");
  EXPECT_HAS(soft_choice(nullptr, true, 1), "peers are on other hosts");
}

TEST(SoftDeviceChoice, IsOnTheRouteToThePeer) {
  const Route by_interface{gid("10.1.0.200"), "eth1"};
  const Route by_address{gid("10.0.0.7"), ""};
  const Route nowhere{gid("10.5.0.7"), "eth5"};
  EXPECT_EQ(soft_choice(&by_interface, true), "soft2");
  EXPECT_EQ(soft_choice(&by_interface, false), "soft2");
  EXPECT_EQ(soft_choice(&by_address, true), "soft1");
  EXPECT_HAS(soft_choice(&nowhere, true), "none is on eth5");
}

}  // namespace
}  // namespace tensorwire::verbs
