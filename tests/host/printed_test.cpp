// Outputs of tools as people attach them to reports, whole and cut short, alone and as the only thing that a root
// holds.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "host/parse/lspci.hpp"
#include "host/parse/network.hpp"
#include "host/parse/qos_text.hpp"
#include "host/parse/rdma_text.hpp"
#include "host/read/read.hpp"
#include "host/record.hpp"
#include "host/report.hpp"

namespace tensorwire::host {

namespace {

constexpr std::string_view kShowGids =
    "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n"
    "---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\n"
    "mlx5_0\t1\t2\t0000:0000:0000:0000:0000:ffff:c000:020a\t192.0.2.10  \tv1\teth2\n"
    "mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:c000:020a\t192.0.2.10  \tv2\teth2\n"
    "mlx5_1\t1\t5\t2001:0db8:0000:0000:0000:0000:0000:000a\t\t\tv2\teth3\n"
    "n_gids_found=3\n";

constexpr std::string_view kDevinfo =
    "hca_id:\tmlx5_0\n"
    "\ttransport:\t\t\tInfiniBand (0)\n"
    "\tfw_ver:\t\t\t\t28.39.1002\n"
    "\tnode_guid:\t\t\ta088:c203:0011:2233\n"
    "\tvendor_id:\t\t\t0x02c9\n"
    "\tphys_port_cnt:\t\t\t1\n"
    "\t\tport:\t1\n"
    "\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n"
    "\t\t\tmax_mtu:\t\t4096 (5)\n"
    "\t\t\tactive_mtu:\t\t1024 (3)\n"
    "\t\t\tport_lid:\t\t0\n"
    "\t\t\tlink_layer:\t\tEthernet\n"
    "\t\t\tGID[  0]:\t\tfe80:0000:0000:0000:0e42:a1ff:fe03:0001, RoCE v1\n"
    "\t\t\tGID[  1]:\t\tfe80::e42:a1ff:fe03:1, RoCE v2\n"
    "\t\t\tGID[  3]:\t\t::ffff:192.0.2.10, RoCE v2\n\n"
    "hca_id:\tmlx5_1\n"
    "\t\tport:\t1\n"
    "\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n"
    "\t\t\tlink_layer:\t\tInfiniBand\n";

constexpr std::string_view kLspci =
    "3a:00.0 PCI bridge: Intel Corporation Device 352a (rev 04) (prog-if 00 [Normal decode])\n"
    "\tControl: I/O- Mem+ BusMaster+ SpecCycle- MemWINV- VGASnoop- ParErr+ Stepping- SERR+ FastB2B- DisINTx+\n"
    "\tBus: primary=3a, secondary=3b, subordinate=3e, sec-latency=0\n"
    "\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00\n"
    "\tCapabilities: [110 v1] Access Control Services\n"
    "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n"
    "3b:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0) (prog-if 00 [Normal decode])\n"
    "\tBus: primary=3b, secondary=3c, subordinate=3e, sec-latency=0\n"
    "\tCapabilities: [68] Express (v2) Upstream Port, MSI 00\n"
    "3c:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0) (prog-if 00 [Normal decode])\n"
    "\tBus: primary=3c, secondary=3d, subordinate=3d, sec-latency=0\n"
    "\tCapabilities: [148 v1] Access Control Services\n"
    "\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+\n"
    "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-\n"
    "3c:01.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0) (prog-if 00 [Normal decode])\n"
    "\tBus: primary=3c, secondary=3e, subordinate=3e, sec-latency=0\n"
    "\tCapabilities: [148 v1] Access Control Services\n"
    "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n"
    "3d:00.0 Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
    "\tNUMA node: 0\n"
    "\tIOMMU group: 51\n"
    "\tRegion 0: Memory at 209ffe000000 (64-bit, prefetchable) [size=32M]\n"
    "\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n"
    "\t\tDevCtl:\tCorrErr+ NonFatalErr+ FatalErr+ UnsupReq+\n"
    "\t\t\tRlxdOrd+ ExtTag+ PhantFunc- AuxPwr- NoSnoop+ FLReset-\n"
    "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n"
    "\t\tLnkSta:\tSpeed 16GT/s (downgraded), Width x8 (downgraded)\n"
    "\tKernel driver in use: mlx5_core\n"
    "0000:3e:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n"
    "\tNUMA node: 0\n"
    "\tRegion 0: Memory at 5e042000000 (64-bit, prefetchable) [size=16M]\n"
    "\tRegion 1: Memory at 5c000000000 (64-bit, prefetchable) [size=128G]\n"
    "\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n"
    "\tKernel driver in use: nvidia\n";

constexpr std::string_view kNiccli =
    "IEEE 8021QAZ ETS Configuration TLV:\n"
    "\t PRIO_MAP: 0:0 1:0 2:0 3:1 4:0 5:0 6:0 7:2 \n"
    "\t TC Bandwidth: 50% 50% 0% \n"
    "\t TSA_MAP: 0:ets 1:ets 2:strict \n"
    "IEEE 8021QAZ PFC TLV:\n"
    "\t PFC enabled: 3 \n"
    "IEEE 8021QAZ APP TLV:\n"
    "\t APP#0:\n\t  Priority: 7\n\t  Sel: 5\n\t  DSCP: 48\n\n"
    "\t APP#1:\n\t  Priority: 3\n\t  Sel: 5\n\t  DSCP: 26\n\n"
    "\t APP#2:\n\t  Priority: 3\n\t  Sel: 3\n\t  UDP or DCCP: 4791\n\n"
    "TC Rate Limit: 100% 100% 100% 0% 0% 0% 0% 0% \n";

const LspciDevice& at(const std::vector<LspciDevice>& devices, const std::string& address) {
  for (const LspciDevice& device : devices) {
    if (device.address == address) return device;
  }
  throw std::out_of_range{address};
}

/// A root that holds what tools printed and nothing else.
class Attached {
 public:
  Attached() : root_(testing::TempDir() + "tw_attached_XXXXXX") {
    if (mkdtemp(root_.data()) == nullptr) throw std::runtime_error{"no folder for a test"};
    mkdir((root_ + "/tool").c_str(), 0755);
  }
  Attached& add(const std::string& tool, std::string_view text) {
    const auto slash = tool.find('/');
    if (slash != std::string::npos) mkdir((root_ + "/tool/" + tool.substr(0, slash)).c_str(), 0755);
    std::ofstream{root_ + "/tool/" + tool} << text;
    return *this;
  }
  [[nodiscard]] Host read() const { return read_host(*open_recorded(root_)); }

 private:
  std::string root_;
};

bool fires(const Host& host, std::string_view id) {
  const Diagnosis diagnosis = diagnose(host);
  return std::ranges::find(diagnosis.findings, id, &Finding::id) != diagnosis.findings.end();
}

TEST(ShowGidsText, OfTwoDevices) {
  const auto devices = parse_show_gids(kShowGids, "show_gids");
  ASSERT_EQ(devices.size(), 2U);
  ASSERT_EQ(devices[0].ports.at(0).gids.size(), 2U);
  const Gid& gid = devices[0].ports[0].gids[1];
  EXPECT_EQ(gid.index, 3U);
  EXPECT_EQ(to_string(gid.address), "192.0.2.10");
  EXPECT_TRUE(gid.is_v2());
  EXPECT_TRUE(gid.netdev.is("eth2"));
  EXPECT_EQ(to_string(devices[1].ports.at(0).gids.at(0).address), "2001:db8::a");
}

TEST(ShowGidsText, OfAHostWithoutAddresses) {
  EXPECT_TRUE(parse_show_gids("DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\nn_gids_found=0\n", "x").empty());
  EXPECT_TRUE(parse_show_gids("-bash: show_gids: command not found\n", "x").empty());
}

TEST(DevinfoText, OfTwoDevices) {
  const auto devices = parse_ibv_devinfo(kDevinfo, "ibv_devinfo -v");
  ASSERT_EQ(devices.size(), 2U);
  const PrintedPort& port = devices[0].ports.at(0);
  EXPECT_EQ(port.state, "ACTIVE");
  EXPECT_EQ(port.active_mtu, 1024U);
  EXPECT_EQ(port.link_layer, LinkLayer::kEthernet);
  ASSERT_EQ(port.gids.size(), 3U);
  EXPECT_TRUE(port.gids[0].address.is_ipv6_link_local());
  EXPECT_TRUE(port.gids[0].version.is(GidVersion::kRoceV1));
  EXPECT_EQ(port.gids[2].index, 3U);
  EXPECT_EQ(devices[1].ports.at(0).link_layer, LinkLayer::kInfiniband);
  EXPECT_TRUE(parse_ibv_devinfo("No IB devices found\n", "x").empty());
}

TEST(LspciText, AsRoot) {
  const auto devices = parse_lspci(kLspci);
  ASSERT_EQ(devices.size(), 6U);
  const LspciDevice& nic = at(devices, "0000:3d:00.0");
  EXPECT_EQ(nic.driver, "mlx5_core");
  EXPECT_EQ(nic.relaxed_ordering, true);
  EXPECT_EQ(nic.link.value().width, 8U);
  EXPECT_EQ(nic.best_link.value().gt_per_s, 32);
  EXPECT_EQ(nic.numa_node, 0);
  EXPECT_EQ(path_of(nic, devices).bridges, (std::vector<std::string>{"0000:3a:00.0", "0000:3b:00.0", "0000:3c:00.0"}));
  EXPECT_EQ(path_of(nic, devices).root, "pci0000:3a");
  EXPECT_EQ(at(devices, "0000:3e:00.0").bar1_bytes, std::uint64_t{128} << 30);
  EXPECT_EQ(at(devices, "0000:3c:01.0").acs.value().control, 0x1d);
  EXPECT_FALSE(at(devices, "0000:3c:00.0").acs.value().redirects());
  EXPECT_FALSE(at(devices, "0000:3b:00.0").acs.value().present);
}

TEST(LspciText, WithoutRoot) {
  const auto devices = parse_lspci(
      "3c:01.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)\n"
      "\tBus: primary=3c, secondary=3e, subordinate=3e, sec-latency=0\n\tCapabilities: <access denied>\n");
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_TRUE(devices[0].access_denied);
  EXPECT_FALSE(devices[0].acs) << "no statement";
}

TEST(NiccliText, OfALosslessPort) {
  const NiccliQos qos = parse_niccli_qos(kNiccli);
  EXPECT_EQ(qos.pfc, PrioritySet{0b1000});
  EXPECT_EQ(qos.traffic_class.value()[3], 1);
  EXPECT_EQ(qos.app.value().priority_of_dscp[26], 3);
  EXPECT_EQ(qos.app.value().priority_of_dscp[48], 7);
  EXPECT_EQ(qos.app.value().priority_of_rocev2, 3);
}

TEST(NiccliText, OfAPortAsItComes) {
  const NiccliQos qos = parse_niccli_qos("IEEE 8021QAZ PFC TLV:\n\t PFC enabled: none\nIEEE 8021QAZ APP TLV:\n");
  EXPECT_EQ(qos.pfc, PrioritySet{});
  EXPECT_FALSE(qos.app.value().has_dscp);
  EXPECT_FALSE(parse_niccli_qos("ERROR: device not found\n").pfc);
}

TEST(MlnxQosText, Buffers) {
  const MlnxQos qos = parse_mlnx_qos(
      "Receive buffer size (bytes): 19872,243072,0,0,0,0,0,0,max_buffer_size=2069280\nCable len: 7\nPFC "
      "configuration:\n"
      "\tpriority    0   1   2   3   4   5   6   7\n\tenabled     0   0   0   1   0   0   0   0   \n"
      "\tbuffer      0   0   0   1   0   0   0   0   \n");
  EXPECT_EQ(qos.buffer_bytes.value()[1], 243'072U);
  EXPECT_EQ(qos.buffer.value()[3], 1);
  EXPECT_FALSE(parse_mlnx_qos("Receive buffer size (bytes): 19872,x,0,0,0,0,0,0,\n\tbuffer 0 0 9 0 0 0 0 0\n").buffer);
}

TEST(IpText, Neighbours) {
  const auto neighbours = parse_neighbours(
      "192.0.2.11 dev eth2 lladdr 0c:42:a1:03:00:0b REACHABLE\n192.0.2.12 dev eth2  FAILED\n"
      "fe80::1 dev eth0 lladdr 52:54:00:77:00:02 router STALE\nNothing to dump\n");
  ASSERT_EQ(neighbours.size(), 3U);
  EXPECT_EQ(neighbours[1].state, "FAILED");
  EXPECT_EQ(neighbours[2].state, "STALE");
}

TEST(ProcText, RoutesOfBothFamilies) {
  const auto ipv6 = parse_ipv6_routes(
      "20010db8000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 "
      "00000100 "
      "00000001 00000000 00000001     eth2\n"
      "fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 "
      "00000100 "
      "00000001 00000000 00000001     eth2\n"
      "00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 "
      "00000400 "
      "00000001 00000000 00000003     eth0\n"
      "00000000000000000000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 "
      "00000000 "
      "00000005 00000000 80200001       lo\n");
  ASSERT_TRUE(ipv6);
  ASSERT_EQ(ipv6->size(), 2U);
  EXPECT_EQ((*ipv6)[0].length, 64U);
  EXPECT_FALSE((*ipv6)[0].gateway);
  EXPECT_EQ(to_string((*ipv6)[1].gateway.value()), "fe80::1");
  const auto ipv4 = parse_ipv4_routes(
      "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT \n"
      "eth0\t00000000\t0102000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n");
  ASSERT_TRUE(ipv4 && ipv4->size() == 1);
  EXPECT_EQ(to_string((*ipv4)[0].gateway.value()), "10.0.2.1");
  EXPECT_FALSE(parse_ipv4_routes("eth0\t0000\n"));
  EXPECT_FALSE(parse_ipv6_routes("20010db8 40\n"));
}

TEST(Attachments, CutAnywhereAreReadWithoutHarm) {
  for (const std::string_view text : {kShowGids, kDevinfo, kLspci, kNiccli}) {
    for (std::size_t size = 0; size < text.size(); ++size) {
      const std::string_view part = text.substr(0, size);
      static_cast<void>(parse_show_gids(part, ""));
      static_cast<void>(parse_ibv_devinfo(part, ""));
      static_cast<void>(parse_niccli_qos(part));
      static_cast<void>(parse_lspci(part));
    }
  }
}

TEST(Attachments, LspciAloneShowsAccessControlAndTheLink) {
  const Host host = Attached{}.add("lspci", kLspci).read();
  EXPECT_TRUE(fires(host, "TW-GDR-001")) << report_json(host, diagnose(host));
  EXPECT_TRUE(fires(host, "TW-LINK-001"));
  EXPECT_FALSE(fires(host, "TW-GDR-006"));
}

TEST(Attachments, ShowGidsAndDevinfoShowTheTable) {
  const Host host = Attached{}.add("show_gids", kShowGids).add("ibv_devinfo", kDevinfo).read();
  ASSERT_TRUE(host.rdma && host.rdma->size() == 2);
  EXPECT_EQ((*host.rdma)[0].family, NicFamily::kMlx5);
  EXPECT_EQ((*host.rdma)[0].ports.at(0).gids->size(), 3U);
  EXPECT_TRUE(fires(host, "TW-DEV-005")) << "mlx5_1 is InfiniBand there";
  EXPECT_FALSE(fires(host, "TW-DEV-009"));
}

}  // namespace

}  // namespace tensorwire::host
