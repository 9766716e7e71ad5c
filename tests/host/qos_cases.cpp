// PFC, ECN, the way from traffic class to priority, and packet sizes.
#include "host/rule_case.hpp"
#include "host/tree/tools.hpp"

namespace tensorwire::host::test {

namespace {

/// All NICs of a host print this for a tool.
void all_print(TestHost& host, std::string_view tool, const std::string& text) {
  for (const Nic& nic : host.nics()) host.tool(tool, nic.netdev, text);
}

std::string pfc_on(const std::vector<bool>& priorities) {
  std::string text = R"({"pfc_cap":8,"macsec_bypass":false,"delay":7,"prio_pfc":[)";
  for (std::size_t i = 0; i < priorities.size(); ++i)
    text += std::string{i > 0 ? "," : ""} + (priorities[i] ? "true" : "false");
  return text + "]}";
}

void pause(TestHost& host, const char* state, const char* negotiated = "off") {
  host.tool(tool::kEthtoolPause, host.nic().netdev,
            std::string{"Pause parameters for eth2:\nAutonegotiate:\t"} + negotiated + "\nRX:\t\t" + state +
                "\nTX:\t\t" + state + "\n");
}

const std::string kParameters = "/sys/kernel/debug/mlx5/0000:3d:00.0/cc_params/";

/// What mlnx_qos prints of buffers: bytes of each, the buffer of each priority, and PFC.
void buffers(TestHost& host, const std::string& bytes, const std::string& of_priority, const std::string& pfc) {
  std::string map;
  for (int priority = 0; priority < 8; ++priority)
    map += "\tprio:" + std::to_string(priority) + " dscp:" + std::to_string(priority * 8) + "," +
           std::to_string(priority * 8 + 2) + ",\n";
  all_print(host, tool::kMlnxQos,
            "DCBX mode: OS controlled\nPriority trust state: dscp\ndscp2prio mapping:\n" + map +
                "Receive buffer size (bytes): " + bytes +
                ",max_buffer_size=2069280\nCable len: 7\nPFC configuration:\n"
                "\tpriority    0   1   2   3   4   5   6   7\n\tenabled     " +
                pfc + "   \n\tbuffer      " + of_priority + "   \n");
}

void bond(TestHost& host) {
  host.file(host.nic().net() + "/bonding/slaves", "eth8 eth9\n").set("NCCL_IB_QPS_PER_CONNECTION", "4");
}

void all_in_0(TestHost& host) {
  for (const Nic& nic : host.nics()) host.statistics(nic, {{"rx_prio0_bytes", 999'000'000'000}, {"rx_prio3_bytes", 0}});
}

const std::vector<RuleCase> kQosCases = {
    {"NoPfc",
     Kind::kMlx5,
     [](TestHost& host) { all_print(host, tool::kDcbPfc, pfc_on(std::vector<bool>(8))); },
     {"PFC-001", "PFC-006"},
     "prio-pfc all:off 3:on"},
    {"PfcUnknown",
     Kind::kMlx5,
     [](TestHost& host) {
       for (const Nic& nic : host.nics()) host.no_tool(tool::kDcbPfc, nic.netdev);
     },
     {"!PFC-001"}},
    {"PfcOnThree",
     Kind::kMlx5,
     [](TestHost& host) {
       all_print(host, tool::kDcbPfc, pfc_on({false, false, false, true, true, true, false, false}));
     },
     {"PFC-002"}},
    {"PfcOnPriority0Too",
     Kind::kMlx5,
     [](TestHost& host) {
       all_print(host, tool::kDcbPfc, pfc_on({true, false, false, true, false, false, false, false}));
     },
     {"PFC-002"}},
    {"PfcOnTwo",
     Kind::kMlx5,
     [](TestHost& host) {
       all_print(host, tool::kDcbPfc, pfc_on({false, false, false, true, true, false, false, false}));
     },
     {"!PFC-002"}},
    {"PfcInWords",
     Kind::kMlx5,
     [](TestHost& host) {
       all_print(host, tool::kDcbPfc,
                 "pfc-cap 8 macsec-bypass off delay 7\nprio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off\n");
     },
     {"!PFC-001"}},
    {"GlobalPause", Kind::kBroadcom, [](TestHost& host) { pause(host, "on"); }, {"PFC-003"}, "ethtool -A eth2"},
    {"GlobalPauseNegotiatedOff", Kind::kBroadcom, [](TestHost& host) { pause(host, "off", "on"); }, {"!PFC-003"}},
    {"PauseStorm",
     Kind::kMlx5,
     [](TestHost& host) {
       host.statistics(host.nic(), {{"tx_pause_storm_error_events", 2}});
     },
     {"PFC-004"}},
    {"SlowReceiver",
     Kind::kMlx5,
     [](TestHost& host) {
       host.statistics(host.nic(), {{"tx_prio3_pause", 9'000'000}});
     },
     {"PFC-005"}},
    {"SomePauses",
     Kind::kMlx5,
     [](TestHost& host) {
       host.statistics(host.nic(), {{"tx_prio3_pause", 2'000'000}});
     },
     {"!PFC-005"}},
    {"SwitchPausesAnother",
     Kind::kMlx5,
     [](TestHost& host) {
       host.statistics(host.nic(), {{"rx_prio4_pause", 77}});
     },
     {"PFC-006"},
     "priority 4"},
    {"SwitchPausesNothingElse",
     Kind::kMlx5,
     [](TestHost& host) {
       host.statistics(host.nic(), {{"rx_prio4_pause", 0}, {"rx_prio3_pause", 9'000'000}});
     },
     {"!PFC-004", "!PFC-006"}},

    {"NpOff",
     Kind::kOfed,
     [](TestHost& host) { host.file(host.nic().net() + "/ecn/roce_np/enable/3", "0\n"); },
     {"ECN-001"},
     "echo 1 > /sys/class/net/eth2/ecn/roce_np/enable/3"},
    {"NpOffElsewhere",
     Kind::kOfed,
     [](TestHost& host) { host.file(host.nic().net() + "/ecn/roce_np/enable/5", "0\n"); },
     {"!ECN-001"}},
    {"RpOff",
     Kind::kOfed,
     [](TestHost& host) { host.file(host.nic().net() + "/ecn/roce_rp/enable/3", "0\n"); },
     {"ECN-002"}},
    {"MarksUnanswered",
     Kind::kMlx5,
     [](TestHost& host) { host.hw_counter(host.nic(), "np_cnp_sent", 0); },
     {"ECN-003"}},
    {"NoMarksNoAnswers",
     Kind::kMlx5,
     [](TestHost& host) {
       host.hw_counter(host.nic(), "np_cnp_sent", 0).hw_counter(host.nic(), "np_ecn_marked_roce_packets", 0);
     },
     {"!ECN-003"}},
    {"NotificationsIgnored",
     Kind::kMlx5,
     [](TestHost& host) { host.hw_counter(host.nic(), "rp_cnp_ignored", 5000); },
     {"ECN-004"}},
    {"FewNotificationsIgnored",
     Kind::kMlx5,
     [](TestHost& host) { host.hw_counter(host.nic(), "rp_cnp_ignored", 20); },
     {"!ECN-004"}},
    {"IrdmaIgnoresNotifications",
     Kind::kIntel,
     [](TestHost& host) { host.hw_counter(host.nic(), "cnpIgnored", 5000).hw_counter(host.nic(), "cnpHandled", 12); },
     {"ECN-004"}},
    {"LossesWithoutMarks",
     Kind::kMlx5,
     [](TestHost& host) {
       host.hw_counter(host.nic(), "out_of_sequence", 40'000).hw_counter(host.nic(), "np_ecn_marked_roce_packets", 0);
     },
     {"ECN-005"}},
    {"SomeLossesWithMarks",
     Kind::kMlx5,
     [](TestHost& host) { host.hw_counter(host.nic(), "out_of_sequence", 40'000); },
     {"!ECN-005", "!ECN-006"}},
    {"LossesInSpiteOfMarks",
     Kind::kMlx5,
     [](TestHost& host) { host.hw_counter(host.nic(), "out_of_sequence", 4'000'000); },
     {"ECN-006"}},
    {"CnpWithData",
     Kind::kOfed,
     [](TestHost& host) { host.file(host.nic().net() + "/ecn/roce_np/cnp_dscp", "26\n"); },
     {"ECN-007"}},
    {"CnpInPriority6",
     Kind::kOfed,
     [](TestHost& host) { host.file(host.nic().net() + "/ecn/roce_np/cnp_dscp", "50\n"); },
     {"!ECN-007"}},

    {"TrustsPcp",
     Kind::kMlx5,
     [](TestHost& host) { all_print(host, tool::kDcbApp, "{}"); },
     {"QOS-001"},
     "dcb app replace dev eth2 dscp-prio 26:3"},
    {"TrustsPcpWithVlan",
     Kind::kMlx5,
     [](TestHost& host) {
       all_print(host, tool::kDcbApp, "");
       for (const Nic& nic : host.nics())
         host.gid(nic, 5, "203.0.113.9", "RoCE v2").file(nic.port() + "/gid_attrs/ndevs/5", nic.netdev + ".100\n");
     },
     {"!QOS-001"}},
    {"DscpLeadsElsewhere", Kind::kOfed, [](TestHost& host) { host.set("NCCL_IB_TC", "184"); }, {"QOS-002"}, "DSCP 46"},
    {"AnotherDscpOfTheSamePriority", Kind::kOfed, [](TestHost& host) { host.set("NCCL_IB_TC", "96"); }, {"!QOS-002"}},
    {"WithEcnBit", Kind::kOfed, [](TestHost& host) { host.set("NCCL_IB_TC", "106"); }, {"!QOS-002"}},
    {"Unmarked",
     Kind::kOfed,
     [](TestHost& host) { host.set("NCCL_IB_TC", "").set("NCCL_IB_TIMEOUT", "22"); },
     {"QOS-003"},
     "NCCL_IB_TC=104"},
    {"UnmarkedShell", Kind::kOfed, [](TestHost& host) { host.set("NCCL_IB_TC", ""); }, {"!QOS-003"}},
    {"UnmarkedButForced",
     Kind::kOfed,
     [](TestHost& host) {
       host.set("NCCL_IB_TC", "").set("NCCL_IB_TIMEOUT", "22");
       for (const Nic& nic : host.nics()) host.file(nic.ib() + "/tc/1/traffic_class", "Global tclass=106\n");
     },
     {"!QOS-003"}},
    {"DscpForTrafficClass",
     Kind::kMlx5,
     [](TestHost& host) { host.set("NCCL_IB_TC", "26"); },
     {"QOS-004"},
     "NCCL_IB_TC=104"},
    {"DscpForTrafficClassOfUcx",
     Kind::kMlx5,
     [](TestHost& host) { host.set("UCX_IB_TRAFFIC_CLASS", "0x1a"); },
     {"QOS-004"},
     "UCX_IB_TRAFFIC_CLASS=104"},
    {"DscpForTrafficClassUnproven",
     Kind::kMlx5,
     [](TestHost& host) {
       host.set("NCCL_IB_TC", "26");
       for (const Nic& nic : host.nics()) host.no_tool(tool::kDcbPfc, nic.netdev).no_tool(tool::kDcbApp, nic.netdev);
     },
     {"QOS-004"}},
    {"AllInPriority0", Kind::kMlx5, all_in_0, {"QOS-005"}},
    {"TcpInPriority0",
     Kind::kMlx5,
     [](TestHost& host) {
       all_in_0(host);
       for (const Nic& nic : host.nics()) host.file(nic.port() + "/counters/port_rcv_data", "9000\n");
     },
     {"!QOS-005"}},
    {"Lldpad", Kind::kMlx5, [](TestHost& host) { host.tool(tool::kDaemons, "", "lldpad\n"); }, {"QOS-006"}},
    {"Lldpd", Kind::kMlx5, [](TestHost& host) { host.tool(tool::kDaemons, "", "lldpd\n"); }, {"!QOS-006"}},
    {"FirmwareDcbx",
     Kind::kIntel,
     [](TestHost& host) { host.tool(tool::kDcbx, "eth2", R"({"lld_managed":true,"cee":true,"ieee":true})"); },
     {"QOS-007"},
     "fw-lldp-agent off"},
    {"ServiceLevel", Kind::kMlx5, [](TestHost& host) { host.set("NCCL_IB_SL", "3"); }, {"QOS-008"}},
    {"ServiceLevel0", Kind::kMlx5, [](TestHost& host) { host.set("NCCL_IB_SL", "0"); }, {"!QOS-008"}},
    {"ForcedClassMissesDevx",
     Kind::kOfed,
     [](TestHost& host) {
       host.set("NCCL_IB_TC", "")
           .set("NCCL_GIN_TYPE", "3")
           .file(host.nic().ib() + "/tc/1/traffic_class", "Global tclass=104\n");
     },
     {"QOS-009"},
     "NCCL_GIN_IB_TC=104"},
    {"ForcedClassAndGinsToo",
     Kind::kOfed,
     [](TestHost& host) {
       host.set("NCCL_GIN_IB_TC", "104")
           .set("NCCL_GIN_TYPE", "3")
           .file(host.nic().ib() + "/tc/1/traffic_class", "Global tclass=104\n");
     },
     {"!QOS-009"}},

    {"SmallMtu",
     Kind::kMlx5,
     [](TestHost& host) {
       for (const Nic& nic : host.nics()) host.file(nic.net() + "/mtu", "1500\n");
     },
     {"MTU-001"},
     "1024"},
    {"Mtu4200",
     Kind::kMlx5,
     [](TestHost& host) {
       for (const Nic& nic : host.nics()) host.file(nic.net() + "/mtu", "4200\n");
     },
     {"!MTU-001"}},
    {"MixedMtu",
     Kind::kMlx5,
     [](TestHost& host) { host.file(host.nic().net() + "/mtu", "2200\n"); },
     {"MTU-001", "MTU-002"}},
    {"MixedMtuThatMakesNoDifference",
     Kind::kMlx5,
     [](TestHost& host) { host.file(host.nic().net() + "/mtu", "4200\n"); },
     {"!MTU-002"}},
    {"PeerSendsLarger",
     Kind::kMlx5,
     [](TestHost& host) {
       host.statistics(host.nic(), {{"rx_oversize_pkts_phy", 12}});
     },
     {"MTU-003"}},

    {"RpOffElsewhere",
     Kind::kOfed,
     [](TestHost& host) { host.file(host.nic().net() + "/ecn/roce_rp/enable/5", "0\n"); },
     {"!ECN-002"}},
    {"SmallTrafficClassThatIsRight",
     Kind::kMlx5,
     [](TestHost& host) {
       all_print(host, tool::kDcbApp, R"({"dscp_prio":[[6,3],[48,6]]})");
       host.set("NCCL_IB_TC", "26");
     },
     {"!QOS-004"}},
    {"DcbxOfTheHostInTwoVersions",
     Kind::kIntel,
     [](TestHost& host) { host.tool(tool::kDcbx, "eth2", R"({"host":true,"cee":true,"ieee":true})"); },
     {"!QOS-007"}},
    {"PeerSendsRunts",
     Kind::kMlx5,
     [](TestHost& host) {
       host.statistics(host.nic(), {{"rx_oversize_pkts_phy", 0}, {"rx_undersize_pkts_phy", 12}});
     },
     {"!MTU-003"}},

    {"LosslessInASharedBuffer",
     Kind::kOfed,
     [](TestHost& host) {
       buffers(host, "262016,0,0,0,0,0,0,0", "0   0   0   0   0   0   0   0", "0   0   0   1   0   0   0   0");
     },
     {"PFC-007"},
     "shares its receive buffer"},
    {"LosslessInAnEmptyBuffer",
     Kind::kOfed,
     [](TestHost& host) {
       buffers(host, "262016,0,0,0,0,0,0,0", "0   0   0   1   0   0   0   0", "0   0   0   1   0   0   0   0");
     },
     {"PFC-007"},
     "has no bytes"},
    {"TwoLosslessInOneBuffer",
     Kind::kOfed,
     [](TestHost& host) {
       buffers(host, "19872,243072,0,0,0,0,0,0", "0   0   0   1   1   0   0   0", "0   0   0   1   1   0   0   0");
     },
     {"!PFC-007"}},
    {"LosslessInASharedBufferOfTheKernelsDriver",
     Kind::kMlx5,
     [](TestHost& host) {
       all_print(host, tool::kDcbBuffer,
                 R"({"prio_buffer":[0,0,0,0,0,0,0,0],"buffer_size":[262016,0,0,0,0,0,0,0],"total_size":262016})");
     },
     {"PFC-007"},
     "dcb buffer set dev eth2 prio-buffer all:0 3:1 buffer-size all:0 0:19872 1:242144"},
    {"LosslessInItsOwnBufferOfTheKernelsDriver",
     Kind::kMlx5,
     [](TestHost& host) {
       all_print(host, tool::kDcbBuffer,
                 R"({"prio_buffer":[0,0,0,1,0,0,0,0],"buffer_size":[19872,242144,0,0,0,0,0,0],"total_size":262016})");
     },
     {"!PFC-007"}},
    {"BroadcomLeavesMarksUnanswered",
     Kind::kBroadcom,
     [](TestHost& host) { host.hw_counter(host.nic(), "tx_cnp_pkts", 0); },
     {"ECN-003"},
     "rx_ecn_marked_pkts: 710"},
    {"FirmwareHasItOnForAnotherPriority",
     Kind::kMlx5,
     [](TestHost& host) { host.firmware(host.nic(), "ROCE_CC_PRIO_MASK_P1", "1"); },
     {"ECN-001", "ECN-002"},
     "mlxconfig -d 0000:3d:00.0 set ROCE_CC_PRIO_MASK_P1=8"},
    {"FirmwareHasItOnForAll",
     Kind::kMlx5,
     [](TestHost& host) { host.firmware(host.nic(), "ROCE_CC_PRIO_MASK_P1", "255"); },
     {"!ECN-001", "!ECN-002"}},
    {"CnpWithDataOnAVlan",
     Kind::kOfed,
     [](TestHost& host) {
       all_print(
           host, tool::kMlnxQos,
           "DCBX mode: OS controlled\nPriority trust state: pcp\nPFC configuration:\n\tpriority    0   1   2   3   4   "
           "5   6   7\n\tenabled     0   0   0   1   0   0   0   0   \n");
       for (const Nic& nic : host.nics()) {
         host.gid(nic, 5, "203.0.113.9", "RoCE v2").file(nic.port() + "/gid_attrs/ndevs/5", nic.netdev + ".100\n");
         host.file(nic.net() + "/ecn/roce_np/cnp_802p_prio", "3\n");
       }
     },
     {"ECN-007"},
     "echo 6 > /sys/class/net/eth2/ecn/roce_np/cnp_802p_prio"},
    {"CnpOfAVlanInAnotherPriority",
     Kind::kOfed,
     [](TestHost& host) {
       all_print(
           host, tool::kMlnxQos,
           "DCBX mode: OS controlled\nPriority trust state: pcp\nPFC configuration:\n\tpriority    0   1   2   3   4   "
           "5   6   7\n\tenabled     0   0   0   1   0   0   0   0   \n");
       for (const Nic& nic : host.nics())
         host.gid(nic, 5, "203.0.113.9", "RoCE v2").file(nic.port() + "/gid_attrs/ndevs/5", nic.netdev + ".100\n");
     },
     {"!ECN-007"}},
    {"EceOnABond",
     Kind::kMlx5,
     [](TestHost& host) {
       bond(host);
       host.firmware(host.nic(), "ROCE_CC_LEGACY_DCQCN", "False(0)");
     },
     {"ECN-009"},
     "NCCL_IB_ECE_ENABLE=0"},
    {"EceForbiddenOnABond",
     Kind::kMlx5,
     [](TestHost& host) {
       bond(host);
       host.firmware(host.nic(), "ROCE_CC_LEGACY_DCQCN", "False(0)").set("NCCL_IB_ECE_ENABLE", "0");
     },
     {"!ECN-009"}},
    {"EceWithLegacyDcqcnOnly",
     Kind::kMlx5,
     [](TestHost& host) {
       bond(host);
       host.firmware(host.nic(), "ROCE_CC_LEGACY_DCQCN", "True(1)");
     },
     {"!ECN-009"}},
    {"EceWithoutABond",
     Kind::kMlx5,
     [](TestHost& host) { host.firmware(host.nic(), "ROCE_CC_LEGACY_DCQCN", "False(0)"); },
     {"!ECN-009"}},
    {"CnpsFarApart",
     Kind::kMlx5,
     [](TestHost& host) { host.file(kParameters + "np_min_time_between_cnps", "4000\n"); },
     {"ECN-008"},
     "np_min_time_between_cnps: 4000"},
    {"RateUnderACeiling",
     Kind::kMlx5,
     [](TestHost& host) { host.file(kParameters + "rp_max_rate", "50000\n"); },
     {"ECN-008"}},
    {"TunedParameters",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file(kParameters + "np_min_time_between_cnps", "50\n").file(kParameters + "rp_max_rate", "0\n");
     },
     {"!ECN-008"}},
    {"CnpWithDataInDebugfs",
     Kind::kMlx5,
     [](TestHost& host) { host.file(kParameters + "np_cnp_dscp", "26\n"); },
     {"ECN-007"},
     "echo 48 > /sys/kernel/debug/mlx5/0000:3d:00.0/cc_params/np_cnp_dscp"},
};

}  // namespace

std::span<const RuleCase> qos_cases() { return kQosCases; }

}  // namespace tensorwire::host::test
