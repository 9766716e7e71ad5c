#include "cli/soft_pci.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

namespace tensorwire::cli {
namespace {

namespace fs = std::filesystem;

/// A folder with as much of sysfs as is asked for.
class SoftPci : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/soft-pci-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    sys_ = fs::canonical(pattern);
    fs::create_directories(sys_ / "bus/pci/devices");
    fs::create_directories(sys_ / "class/net");
  }
  void TearDown() override { fs::remove_all(sys_); }

  void write(const fs::path& file, const std::string& text) const { std::ofstream{sys_ / file} << text << "\n"; }

  /// `way`: below devices/.
  fs::path add_pci(const std::string& way, const std::string& number, const std::string& vendor = "0x15b3") const {
    const fs::path folder = sys_ / "devices" / way;
    fs::create_directories(folder);
    write(folder / "class", number);
    write(folder / "vendor", vendor);
    fs::create_symlink(folder, sys_ / "bus/pci/devices" / folder.filename());
    return folder;
  }

  fs::path add_interface(const std::string& name, int index, const fs::path& below = {}) const {
    const fs::path folder = sys_ / "class/net" / name;
    fs::create_directories(folder);
    write(folder / "ifindex", std::to_string(index));
    if (!below.empty()) fs::create_symlink(below, folder / "device");
    return folder;
  }

  fs::path sys_;
};

TEST_F(SoftPci, TheNicOfTheInterface) {
  const fs::path nic = add_pci("pci0000:00/0000:00:03.0", "0x020000");
  add_interface("eth0", 2, nic);
  const PciPlace place = pci_place(sys_, "eth0", 2);
  EXPECT_EQ(place.folder, nic);
  EXPECT_TRUE(place.is_nic);
  EXPECT_EQ(place.reason, "the NIC of eth0");
}

TEST_F(SoftPci, ABusBelowThePciDeviceIsNoPciDevice) {
  const fs::path nic = add_pci("pci0000:00/0000:00:03.0", "0x020000");
  fs::create_directories(nic / "virtio2");
  add_interface("eth0", 2, nic / "virtio2");
  EXPECT_EQ(pci_place(sys_, "eth0", 2).folder, nic);
}

TEST_F(SoftPci, UnderAVlanOnABond) {
  const fs::path nic = add_pci("pci0000:00/0000:00:03.0", "0x020000");
  const fs::path slave = add_interface("eth0", 2, nic), bond = add_interface("bond0", 3),
                 vlan = add_interface("bond0.7", 4);
  fs::create_symlink(slave, bond / "lower_eth0");
  fs::create_symlink(bond, vlan / "lower_bond0");
  EXPECT_EQ(pci_place(sys_, "bond0.7", 4).folder, nic);
}

TEST_F(SoftPci, AnInterfaceOfTheSameNameInAnotherNamespaceIsNotIt) {
  add_interface("eth0", 2, add_pci("pci0000:00/0000:00:03.0", "0x020000"));
  EXPECT_FALSE(pci_place(sys_, "eth0", 17).is_nic);
}

TEST_F(SoftPci, WithoutANicTheDeviceNextToTheGpu) {
  add_pci("pci0000:00/0000:00:03.0", "0x020000");
  add_pci("pci0000:10/0000:10:00.0", "0x060400");
  add_pci("pci0000:10/0000:10:00.0/0000:11:00.0", "0x030200", "0x10de");
  add_pci("pci0000:10/0000:10:00.0/0000:12:00.0", "0x010802");
  const fs::path nic = add_pci("pci0000:10/0000:10:00.0/0000:13:00.0", "0x020700");
  add_interface("lo", 1);
  const PciPlace place = pci_place(sys_, "lo", 1);
  EXPECT_EQ(place.folder, nic);
  EXPECT_FALSE(place.is_nic);
  EXPECT_EQ(place.reason, "lo has no PCI device; next to the GPU 0000:11:00.0");
}

TEST_F(SoftPci, WithoutAGpuANicBeforeBridges) {
  add_pci("pci0000:00/0000:00:00.0", "0x060000");
  const fs::path nic = add_pci("pci0000:00/0000:00:03.0", "0x020000");
  EXPECT_EQ(pci_place(sys_, "lo", 1).folder, nic);
}

TEST_F(SoftPci, WhereThereIsOnlyAGpuThereIsNone) {
  EXPECT_EQ(pci_place(sys_, "lo", 1).folder, "");
  add_pci("pci0000:10/0000:11:00.0", "0x030200", "0x10de");
  EXPECT_EQ(pci_place(sys_, "lo", 1).folder, "");
}

}  // namespace
}  // namespace tensorwire::cli
