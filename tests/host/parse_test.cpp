// Texts as tools really print them, and such texts cut short.
#include <gtest/gtest.h>

#include "host/parse/counters.hpp"
#include "host/parse/mlxconfig.hpp"
#include "host/parse/nccl_log.hpp"
#include "host/parse/pci.hpp"
#include "host/parse/qos_text.hpp"
#include "host/parse/systemd.hpp"
#include "host/parse/text.hpp"
#include "host/tree/escape.hpp"

namespace tensorwire::host {

namespace {

constexpr std::string_view kMlnxQos =
    "DCBX mode: OS controlled\n"
    "Priority trust state: dscp\n"
    "dscp2prio mapping:\n"
    "\tprio:0 dscp:07,06,05,04,03,02,01,00,\n"
    "\tprio:3 dscp:31,30,29,28,27,26,25,24,\n"
    "\tprio:5 dscp:46,\n"
    "default priority:\n"
    "Receive buffer size (bytes): 130944,130944,0,0,0,0,0,0,max_buffer_size=1027728\n"
    "Cable len: 7\n"
    "PFC configuration:\n"
    "\tpriority    0   1   2   3   4   5   6   7\n"
    "\tenabled     0   0   0   1   0   0   0   0   \n"
    "\tbuffer      0   0   0   1   0   0   0   0   \n"
    "tc: 1 ratelimit: unlimited, tsa: vendor\n"
    "\t priority:  0\n"
    "tc: 0 ratelimit: unlimited, tsa: vendor\n"
    "\t priority:  1\n"
    "tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%\n"
    "\t priority:  3\n"
    "\t priority:  4\n";

TEST(MlnxQosText, WithDscpTrust) {
  const MlnxQos qos = parse_mlnx_qos(kMlnxQos);
  EXPECT_EQ(qos.host_controls, true);
  EXPECT_EQ(qos.trust, Trust::kDscp);
  ASSERT_TRUE(qos.pfc && qos.priority_of_dscp && qos.traffic_class);
  EXPECT_EQ(*qos.pfc, PrioritySet{0b1000});
  EXPECT_EQ((*qos.priority_of_dscp)[26], 3);
  EXPECT_EQ((*qos.priority_of_dscp)[46], 5);
  EXPECT_EQ((*qos.priority_of_dscp)[7], 0);
  EXPECT_EQ((*qos.traffic_class)[0], 1);
  EXPECT_EQ((*qos.traffic_class)[1], 0);
  EXPECT_EQ((*qos.traffic_class)[4], 3);
}

TEST(MlnxQosText, WithBannerPcpAndFirmware) {
  const MlnxQos qos = parse_mlnx_qos(
      "Warning: lldpad service is running, which may conflict with this tool\n"
      "DCBX mode: Firmware controlled\nPriority trust state: pcp\nPFC configuration:\n"
      "\tpriority    0   1   2   3   4   5   6   7\n\tenabled     1   1   1   1   1   1   1   1   \n");
  EXPECT_EQ(qos.host_controls, false);
  EXPECT_EQ(qos.trust, Trust::kPcp);
  EXPECT_TRUE(qos.pfc && qos.pfc->all());
  EXPECT_FALSE(qos.priority_of_dscp);
}

TEST(MlnxQosText, OfAnOldDriverOrCutShort) {
  EXPECT_FALSE(parse_mlnx_qos("Netlink error: Bad value. see dmesg.\n").pfc);
  EXPECT_FALSE(parse_mlnx_qos("PFC configuration:\n\tenabled     0   0   0   1").pfc);
  EXPECT_FALSE(parse_mlnx_qos("\tprio:99 dscp:26,\n\tprio:3 dscp:640,x,\n")
                   .priority_of_dscp.value_or(std::array<std::uint8_t, 64>{})[26]);
  for (std::size_t size = 0; size < kMlnxQos.size(); ++size)
    static_cast<void>(parse_mlnx_qos(kMlnxQos.substr(0, size)));
}

TEST(DcbText, PfcAsJson) {
  EXPECT_EQ(
      parse_dcb_pfc(
          R"({"pfc_cap":8,"macsec_bypass":false,"delay":7,"prio_pfc":[false,false,false,true,false,false,false,false]})"),
      PrioritySet{0b1000});
  EXPECT_EQ(parse_dcb_pfc(R"({"pfc_cap":8,"prio_pfc":[false,true]})"), std::nullopt);
  EXPECT_EQ(parse_dcb_pfc(R"({"pfc_cap":8})"), std::nullopt);
}

TEST(DcbText, PfcInWords) {
  EXPECT_EQ(
      parse_dcb_pfc("pfc-cap 8 macsec-bypass off delay 0 \nprio-pfc 0:off 1:off 2:off 3:on 4:on 5:off 6:off 7:off \n"),
      PrioritySet{0b11000});
  EXPECT_EQ(parse_dcb_pfc("Attribute read: Operation not supported\n"), std::nullopt);
}

TEST(DcbText, AppTable) {
  const auto app = parse_dcb_app(
      R"({"ethtype_prio":[[35093,3]],"default_prio":[2],"dscp_prio":[[24,3],[26,3],[99,1],[26]],"dgram_port_prio":[[4791,3]]})");
  ASSERT_TRUE(app);
  EXPECT_TRUE(app->has_dscp);
  EXPECT_EQ(app->priority_of_dscp[26], 3);
  EXPECT_EQ(app->priority_of_dscp[25], -1);
  EXPECT_EQ(app->priority_of_rocev2, 3);
}

TEST(DcbText, EmptyAppTableIsPrintedAsNothing) {
  for (const char* text : {"", "\n", "{}", "{}\n"}) {
    const auto app = parse_dcb_app(text);
    ASSERT_TRUE(app) << text;
    EXPECT_FALSE(app->has_dscp);
  }
  EXPECT_FALSE(parse_dcb_app("Attribute not found: Success"));
}

TEST(DcbText, EtsAndDcbx) {
  const auto ets = parse_dcb_ets(
      R"({"willing":false,"ets_cap":8,"cbs":false,"tc_bw":[0,0,0,50,0,0,0,50],"pg_bw":[0,0,0,0,0,0,0,0],"tc_tsa":["strict","strict","strict","ets","strict","strict","strict","ets"],"prio_tc":[0,1,2,3,4,5,6,7]})");
  ASSERT_TRUE(ets);
  EXPECT_EQ(ets->traffic_class[3], 3);
  EXPECT_EQ(ets->class_count, 8U);
  ASSERT_TRUE(ets->ets);
  EXPECT_EQ(ets->ets->algorithm[3], Tsa::kEts);
  EXPECT_EQ(ets->ets->algorithm[4], Tsa::kStrict);
  EXPECT_EQ(ets->ets->share[7], 50);
  const auto map_only = parse_dcb_ets(R"({"prio_tc":[0,1,2,3,4,5,6,7],"tc_tsa":["ets"],"tc_bw":[0,0,0,0,0,0,0,101]})");
  ASSERT_TRUE(map_only);
  EXPECT_FALSE(map_only->ets);
  EXPECT_FALSE(parse_dcb_ets(R"({"prio_tc":[0,1,2,3,4,5,6,77]})"));
  EXPECT_EQ(parse_dcb_ets(R"({"ets_cap":0,"prio_tc":[0,1,2,3,4,5,6,7]})")->class_count, 8U) << "three bits";
  EXPECT_EQ(parse_dcbx(R"({"host":true,"ieee":true})"), true);
  EXPECT_EQ(parse_dcbx(R"({"lld_managed":true,"ieee":true})"), false);
  EXPECT_EQ(parse_dcbx("host ieee"), std::nullopt);
}

TEST(DcbText, Buffer) {
  const auto buffer = parse_dcb_buffer(
      R"({"prio_buffer":[0,0,0,1,0,0,0,0],"buffer_size":[19872,243072,0,0,0,0,0,0],"total_size":262944})");
  ASSERT_TRUE(buffer);
  EXPECT_EQ(buffer->buffer[3], 1);
  EXPECT_EQ(buffer->bytes[1], 243'072U);
  EXPECT_FALSE(parse_dcb_buffer(R"({"prio_buffer":[0,0,0,8,0,0,0,0],"buffer_size":[1,0,0,0,0,0,0,0]})"));
  EXPECT_FALSE(parse_dcb_buffer(R"({"prio_buffer":[0,0,0,1,0,0,0,0]})"));
}

TEST(MlxconfigText, TheCurrentValueCounts) {
  const auto settings = parse_mlxconfig(
      "\nDevice #1:\n----------\n\nDevice type:        ConnectX6DX         \nName:               MCX623106AN-CDA_Ax  \n"
      "Device:             3d:00.1         \n\nConfigurations:                       Default             Current       "
      "  Next Boot\n"
      "        PF_SD_GROUP                   0                   0                   0       \n"
      "*       PCI_WR_ORDERING               per_mkey(0)         force_relax(1)      per_mkey(0)\n"
      "The '*' shows parameters with next value different from default/current value.\n");
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->size(), 2U);
  EXPECT_EQ(settings->at("PCI_WR_ORDERING"), "force_relax(1)");
  const auto next_boot =
      parse_mlxconfig("Configurations:                      Next Boot\n        ROCE_CC_LEGACY_DCQCN   False(0)  \n");
  ASSERT_TRUE(next_boot);
  EXPECT_EQ(next_boot->at("ROCE_CC_LEGACY_DCQCN"), "False(0)");
  EXPECT_FALSE(parse_mlxconfig("-E- Failed to open the device\n"));
  EXPECT_EQ(fabric_settings("Name:    X\nConfigurations:   Next Boot\n  PF_SD_GROUP   0\n  CNP_DSCP_P1   48\n"),
            "Configurations:   Next Boot\n  CNP_DSCP_P1   48\n");
}

TEST(MlnxQosText, SharesOfClasses) {
  const MlnxQos qos = parse_mlnx_qos(
      "tc: 0 ratelimit: unlimited, tsa: ets, bw: 50%\n\t priority:  0\n\t priority:  1\n"
      "tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%\n\t priority:  3\ntc: 6 ratelimit: 10.0 Gbps, tsa: strict\n\t "
      "priority:  6\n");
  ASSERT_TRUE(qos.ets);
  EXPECT_EQ(qos.ets->algorithm[3], Tsa::kEts);
  EXPECT_EQ(qos.ets->share[3], 50);
  EXPECT_EQ(qos.ets->algorithm[6], Tsa::kStrict);
  EXPECT_EQ(qos.ets->algorithm[7], Tsa::kVendor) << "not printed";
  EXPECT_EQ((*qos.traffic_class)[6], 6);
}

TEST(OfedText, Dscp2prio) {
  const auto map = parse_dscp2prio("dscp2prio mapping:\n\tprio:3 dscp:26,\n\tprio:6 dscp:48,\n");
  ASSERT_TRUE(map);
  EXPECT_EQ((*map)[26], 3);
  EXPECT_EQ((*map)[48], 6);
  EXPECT_FALSE(parse_dscp2prio("nothing\n"));
}

TEST(SystemdText, LimitOfLockedMemory) {
  EXPECT_EQ(limit_memlock_in("[Service]\nLimitMEMLOCK=64K\n LimitMEMLOCK = infinity \n"), "infinity");
  EXPECT_EQ(limit_memlock_in("[Service]\nLimitMEMLOCK=\n"), "");
  EXPECT_EQ(limit_memlock_in("[Service]\n#LimitMEMLOCK=64K\n"), std::nullopt);
  EXPECT_EQ(bytes_of_limit("64K"), 65'536U);
  EXPECT_EQ(bytes_of_limit("8M:infinity"), 8U << 20);
  EXPECT_EQ(bytes_of_limit("65536"), 65'536U);
  EXPECT_EQ(bytes_of_limit("infinity"), UINT64_MAX);
  EXPECT_EQ(bytes_of_limit("99999999E"), std::nullopt);
  EXPECT_EQ(bytes_of_limit("K"), std::nullopt);
  EXPECT_EQ(service_in("0::/system.slice/slurmd.service/job_7/step_0\n"), "slurmd.service");
  EXPECT_EQ(service_in("0::/user.slice/user-0.slice/session-1.scope\n"), "");
}

TEST(EthtoolText, StatisticsOfMlx5) {
  const Counters counters = parse_ethtool_statistics(
      "NIC statistics:\n     rx_packets: 5126\n     rx_prio3_pause: 17\n     rx_prio3_pause_duration: 2201\n     "
      "ch0_events: 18446744073709551615\n     broken: x\n");
  EXPECT_EQ(counters.size(), 4U);
  EXPECT_EQ(counters.at("rx_prio3_pause"), 17U);
  EXPECT_EQ(counters.at("ch0_events"), UINT64_MAX);
}

TEST(EthtoolText, StatisticsOfBroadcomIceAndVirtio) {
  EXPECT_EQ(parse_ethtool_statistics("     [0]: rx_ucast_packets: 12\n").at("[0]: rx_ucast_packets"), 12U);
  EXPECT_EQ(parse_ethtool_statistics("NIC statistics:\n     rx_priority_3_xoff.nic: 4\n").at("rx_priority_3_xoff.nic"),
            4U);
  EXPECT_TRUE(parse_ethtool_statistics("no stats available\n").empty());
}

TEST(NcclConf, CommentsAndBlanks) {
  const auto settings = parse_nccl_conf("# host\n NCCL_IB_TC = 104 # lossless\nNCCL_DEBUG=INFO\n=x\nnothing\r\n");
  EXPECT_EQ(settings.size(), 2U);
  EXPECT_EQ(settings.at("NCCL_IB_TC"), "104");
}

TEST(Environment, IsSplitAtZeros) {
  const auto variables = parse_environment(std::string_view{"A=1\0NCCL_IB_TC=\0=bad\0junk\0B=x=y\0", 32});
  EXPECT_EQ(variables.size(), 3U);
  EXPECT_EQ(variables.at("NCCL_IB_TC"), "");
  EXPECT_EQ(variables.at("B"), "x=y");
}

TEST(NcclLogText, OfVersion227) {
  const NcclLog log = parse_nccl_log(
      "host-a:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:203.0.113.7<0>\n"
      "NCCL version 2.27.3+cuda12.9\n"
      "host-a:1:1 [0] NCCL INFO Using network IB\n"
      "host-a:1:1 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/1/GDRDMA(PCI)\n"
      "host-a:1:1 [0] NCCL INFO Channel 01/0 : 1[1] -> 2[0] [send] via NET/IB/0\n",
      "job.log");
  EXPECT_EQ(log.version, "2.27.3");
  ASSERT_EQ(log.channels.size(), 2U);
  EXPECT_EQ(log.channels[0].line, 4U);
  EXPECT_TRUE(log.channels[0].gdr);
  EXPECT_FALSE(log.channels[1].gdr);
  EXPECT_EQ(log.networks.size(), 1U);
}

TEST(NcclLogText, CompletionsOldAndNew) {
  const NcclLog log = parse_nccl_log(
      "NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129\n"
      "NCCL WARN NET/IB: Got completion from peer 192.0.2.1<40911> with status=5 opcode=32542 len=0 vendor err 249 "
      "(Recv)\n",
      "log");
  ASSERT_EQ(log.completions.size(), 2U);
  EXPECT_EQ(log.completions[0].status, 12);
  EXPECT_EQ(log.completions[0].vendor_error, 129);
  EXPECT_EQ(log.completions[1].status, 5);
  EXPECT_EQ(log.completions[1].line.number, 2U);
}

TEST(NcclLogText, QueuePairThatCannotBeConnected) {
  const NcclLog log = parse_nccl_log(
      "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_2:1, curr state INIT, next "
      "state RTR, "
      "local GID index 3, local GID ::ffff:192.0.2.10, remote GID ::ffff:198.51.100.20\n"
      "NCCL WARN Call to ibv_modify_qp failed with error Invalid argument\n",
      "log");
  ASSERT_EQ(log.connects.size(), 2U);
  EXPECT_EQ(log.connects[0].error, 110);
  EXPECT_EQ(log.connects[0].local_gid, "::ffff:192.0.2.10");
  EXPECT_EQ(log.connects[0].remote_gid, "::ffff:198.51.100.20");
  EXPECT_EQ(log.connects[1].error, 22);
}

TEST(NcclLogText, IsBounded) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "NCCL WARN Got completion with error 12, " + std::string(5000, 'x') + "\n";
  const NcclLog log = parse_nccl_log(text, "log");
  EXPECT_EQ(log.completions.size(), 32U);
  EXPECT_LE(log.completions[0].line.text.size(), 400U);
}

TEST(PciText, PathOfADevice) {
  const auto path = path_in("/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:08.0/0000:3d:00.0");
  ASSERT_TRUE(path);
  EXPECT_EQ(path->root, "pci0000:3a");
  EXPECT_EQ(path->bridges, (std::vector<std::string>{"0000:3a:00.0", "0000:3b:00.0", "0000:3c:08.0"}));
  EXPECT_TRUE(path_in("/sys/devices/LNXSYSTM:00/pci10000:e0/10000:e0:01.0/10000:e1:00.0"));
  EXPECT_FALSE(path_in("/sys/devices/virtual/net/lo"));
}

TEST(PciText, ResourceAndConfigCutShort) {
  EXPECT_EQ(bar1_in("0x0 0x0 0x0\n0x0000021000000000 0x000002100fffffff 0x000000000014220c\n"),
            std::uint64_t{256} << 20);
  EXPECT_EQ(bar1_in("0x0 0x0 0x0\n0x0 0x0 0x0\n"), 0U);
  EXPECT_EQ(bar1_in("0x5 0x0"), std::nullopt);
  EXPECT_EQ(acs_in(std::string(64, '\0')), std::nullopt);
  EXPECT_EQ(relaxed_ordering_in(std::string(64, '\0')), std::nullopt);
  std::string circle(4096, '\0');
  circle[0x102] = 0x01;
  circle[0x103] = 0x10;  // next capability: itself
  ASSERT_TRUE(acs_in(circle));
  EXPECT_FALSE(acs_in(circle)->present);
}

TEST(EscapedText, IsReadBackAsItWas) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  for (const std::string& text :
       {all, all + std::string(5000, '\0') + "x", std::string{"!EINVAL"}, std::string{"\\x4\\z9\\"}, std::string{}}) {
    EXPECT_EQ(unescaped(escaped(text)), text);
    EXPECT_EQ(escaped(text).find_first_of("\n\t"), std::string::npos);
  }
  EXPECT_LT(escaped(std::string(4096, '\0')).size(), 10U);
}

}  // namespace

}  // namespace tensorwire::host
