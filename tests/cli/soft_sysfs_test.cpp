#include "cli/soft_sysfs.hpp"

#include <endian.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/soft_nccl.hpp"

namespace tensorwire::cli {
namespace {

constexpr std::uint32_t kAddress = 0x0a4d0001;  // 10.77.0.1

SoftDeviceFacts soft_device(const std::string& name, std::uint32_t ipv4, const std::string& interface = "eth0") {
  SoftDeviceFacts device;
  device.info.name = name;
  device.info.interface = interface;
  device.info.ipv4 = ipv4;
  device.info.guid = htobe64(0x0002c9fffe001122);
  device.port.speed_mbps = 100'000;
  device.gids = {{}, {.gid = wire::Gid::from_ipv4(ipv4), .roce_v2 = true, .usable = true}};
  device.pci_folder = "/sys/devices/pci0000:00/0000:00:03.0";
  return device;
}

std::string text_at(const SoftDeviceFacts& device, const std::string& path) {
  const auto entries = sysfs_entries(device);
  const auto found = std::ranges::find(entries, path, &SysfsEntry::path);
  return found == entries.end() ? "(not there)" : found->text;
}

TEST(SoftSysfs, AnActivePortIsSaidAsTheKernelSaysIt) {
  const SoftDeviceFacts device = soft_device("soft1", kAddress);
  EXPECT_EQ(text_at(device, "soft1/node_type"), "1: CA\n");
  EXPECT_EQ(text_at(device, "soft1/node_guid"), "0002:c9ff:fe00:1122\n");
  EXPECT_EQ(text_at(device, "soft1/ports/1/state"), "4: ACTIVE\n");
  EXPECT_EQ(text_at(device, "soft1/ports/1/rate"), "100 Gb/sec (4X EDR)\n");
  EXPECT_EQ(text_at(device, "soft1/ports/1/link_layer"), "Ethernet\n");
  EXPECT_EQ(text_at(device, "soft1/ports/1/gids/1"), "0000:0000:0000:0000:0000:ffff:0a4d:0001\n");
  EXPECT_EQ(text_at(device, "soft1/ports/1/gid_attrs/types/1"), "RoCE v2\n");
  EXPECT_EQ(text_at(device, "soft1/ports/1/gid_attrs/ndevs/1"), "eth0\n");
}

TEST(SoftSysfs, AnEmptyIndexHasAZeroGidAndNeitherTypeNorInterface) {
  const SoftDeviceFacts device = soft_device("soft1", kAddress);
  EXPECT_EQ(text_at(device, "soft1/ports/1/gids/0"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
  EXPECT_EQ(text_at(device, "soft1/ports/1/gid_attrs/types/0"), "");
  EXPECT_EQ(text_at(device, "soft1/ports/1/gid_attrs/ndevs/0"), "");
  EXPECT_EQ(text_at(device, "soft1/ports/1/gids/2"), "(not there)");
}

TEST(SoftSysfs, AnEntryOfRoceV1IsSaid) {
  SoftDeviceFacts device = soft_device("soft1", kAddress);
  device.gids[1].roce_v2 = false;
  EXPECT_EQ(text_at(device, "soft1/ports/1/gid_attrs/types/1"), "IB/RoCE v1\n");
}

TEST(SoftSysfs, APortThatIsDown) {
  SoftDeviceFacts device = soft_device("soft1", kAddress);
  device.port.active = false;
  EXPECT_EQ(text_at(device, "soft1/ports/1/state"), "1: DOWN\n");
  EXPECT_EQ(text_at(device, "soft1/ports/1/phys_state"), "3: Disabled\n");
}

TEST(SoftSysfs, RatesAreThoseOfTheTable) {
  SoftDeviceFacts device = soft_device("soft1", kAddress);
  for (const auto& [mbps, text] : {std::pair{0U, "2.5 Gb/sec (1X SDR)\n"},
                                   {10'000U, "10 Gb/sec (1X FDR10)\n"},
                                   {200'000U, "200 Gb/sec (4X HDR)\n"},
                                   {800'000U, "400 Gb/sec (4X NDR)\n"}}) {
    device.port.speed_mbps = mbps;
    EXPECT_EQ(text_at(device, "soft1/ports/1/rate"), text);
  }
}

TEST(SoftSysfs, TheDeviceIsALinkToItsPciFolderOrNotThere) {
  SoftDeviceFacts device = soft_device("soft1", kAddress);
  const auto entries = sysfs_entries(device);
  const auto link = std::ranges::find(entries, true, &SysfsEntry::link);
  ASSERT_NE(link, entries.end());
  EXPECT_EQ(*link, (SysfsEntry{"soft1/device", "/sys/devices/pci0000:00/0000:00:03.0", true}));
  device.pci_folder.clear();
  EXPECT_EQ(text_at(device, "soft1/device"), "(not there)");
}

std::string value_of(const std::vector<NcclVariable>& variables, std::string_view name) {
  const auto found = std::ranges::find(variables, name, [](const NcclVariable& v) { return std::string_view{v.name}; });
  return found == variables.end() ? "(not set)" : found->value;
}

TEST(SoftNccl, DevicesOnNicsBeforeOthers) {
  const std::vector devices{soft_device("soft0", 0x7f000001, "lo"), soft_device("soft1", kAddress),
                            soft_device("soft2", kAddress + 1, "docker0")};
  const auto variables = nccl_variables(devices, {false, true, false});
  EXPECT_EQ(value_of(variables, "NCCL_IB_HCA"), "=soft1");
  EXPECT_EQ(value_of(variables, "NCCL_IB_GID_INDEX"), "1");
  EXPECT_EQ(value_of(variables, "NCCL_GIN_TYPE"), "2");
  EXPECT_EQ(value_of(nccl_variables(devices, {false, false, false}), "NCCL_IB_HCA"), "=soft1,soft2");
}

TEST(SoftNccl, OneDeviceForEachInterface) {
  const std::vector devices{soft_device("soft1", kAddress, "eth0"), soft_device("soft2", kAddress + 1, "eth0"),
                            soft_device("soft3", kAddress + 2, "eth1")};
  EXPECT_EQ(value_of(nccl_variables(devices, {true, true, true}), "NCCL_IB_HCA"), "=soft1,soft3");
}

TEST(SoftNccl, LoopbackWhereThereIsNothingElse) {
  EXPECT_EQ(value_of(nccl_variables({soft_device("soft0", 0x7f000001, "lo")}, {false}), "NCCL_IB_HCA"), "=soft0");
  EXPECT_TRUE(nccl_variables({}, {}).empty());
}

TEST(SoftNccl, NoIndexWhereNoAddressCanSend) {
  SoftDeviceFacts device = soft_device("soft1", kAddress);
  device.gids[1].usable = false;
  EXPECT_EQ(value_of(nccl_variables({device}, {true}), "NCCL_IB_GID_INDEX"), "(not set)");
}

}  // namespace
}  // namespace tensorwire::cli
