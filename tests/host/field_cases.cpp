// Public bug reports that one host can show: the state that was reported, and what the doctor must say of it.
// Addresses, rails, MTU, QoS here; GPUs, devices and meeting in field_cases_device.cpp; all by number in
// field_case_table_test.cpp.
#include <cerrno>

#include "host/field_words.hpp"
#include "host/rule_case.hpp"
#include "host/tree/tools.hpp"

namespace tensorwire::host::test {

namespace {

void drifted_pin(TestHost& host) {
  const Nic& nic = host.nic(1);
  host.set("NCCL_IB_GID_INDEX", "3").no_gid(nic, 2).no_gid(nic, 3).gid(nic, 4, nic.address, "RoCE v2");
  warns(host,
        "Call to ibv_modify_qp failed with 61 No data available, on dev mlx5_1:1, curr state INIT, next state RTR");
}

void ipv6_fabric(TestHost& host) {
  for (const Nic& nic : host.nics()) host.gid(nic, 1, "2001:db8::a", "RoCE v2");
}

/// A fabric whose lossless class is priority 5, chosen by DSCP 59, which the kernel forces.
void gdaki(TestHost& host) {
  for (const Nic& nic : host.nics()) {
    host.tool(tool::kMlnxQos, nic.netdev,
              "DCBX mode: OS controlled\nPriority trust state: dscp\ndscp2prio mapping:\n\tprio:5 dscp:59,\n"
              "PFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n\tenabled     0   0   0   0   0   1   "
              "0   0   \n");
    host.file(nic.ib() + "/tc/1/traffic_class", "Global tclass=236\n");
    host.statistics(nic, {{"rx_prio3_pause", 0}, {"tx_prio3_pause", 0}});
  }
  host.set("NCCL_IB_TC", "").set("NCCL_GIN_TYPE", "3");
}

void one_subnet(TestHost& host) {
  host.file("/proc/net/route",
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
            "eth2\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
            "eth3\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n");
}

void swapped_rails(TestHost& host) {
  host.file("/proc/net/route",
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
            "eth3\t000200C0\t00000000\t0001\t0\t0\t0\tC0FFFFFF\t0\t0\t0\n"
            "eth2\t006433C6\t00000000\t0001\t0\t0\t0\tC0FFFFFF\t0\t0\t0\n");
}

const std::vector<RuleCase> kFieldCases = {
    {"Nccl769_Index1IsLinkLocal",
     Kind::kMlx5,
     [](TestHost& host) {
       host.set("NCCL_IB_GID_INDEX", "1");
       warns(host, "Call to ibv_modify_qp failed with error Connection timed out");
     },
     {"GID-003", "NCCL-013"},
     "link-local"},
    {"Nccl426_Error12AtOnce",
     Kind::kMlx5,
     [](TestHost& host) {
       host.set("NCCL_IB_GID_INDEX", "0");
       warns(host, "NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129");
     },
     {"GID-002", "NCCL-014"},
     "no acknowledgement came"},
    {"Sparkring186_PinnedIndexBecameAHole",
     Kind::kMlx5,
     drifted_pin,
     {"GID-004", "GID-005", "NCCL-013"},
     "stands at 4"},
    {"MiaAI10_ComposeDefaultOf0",
     Kind::kIntel,
     [](TestHost& host) { host.set("NCCL_IB_GID_INDEX", "0"); },
     {"GID-003"}},
    {"MiaAI10_NotANumber",
     Kind::kMlx5,
     [](TestHost& host) { host.set("NCCL_IB_GID_INDEX", "auto"); },
     {"GID-008"},
     "becomes 0"},
    {"Nccl_EmptyIndexIsIgnored",
     Kind::kMlx5,
     [](TestHost& host) { host.file("/etc/nccl.conf", "NCCL_DEBUG=INFO\n"); },
     {}},
    {"Nccl2157_LinkFlaps",
     Kind::kMlx5,
     [](TestHost& host) {
       host.statistics(host.nic(), {{"link_down_events_phy", 212}});
       warns(host, "NET/IB : mlx5_0:1 Got async event : port error");
     },
     {"LINK-003", "NCCL-017"}},
    {"Nccl_SparseGidTable",
     Kind::kMlx5,
     [](TestHost& host) { host.log("host-a NCCL WARN read failed in ncclIbRoceGetVersionNum: Invalid argument\n"); },
     {"NCCL-020"}},
    {"Uccl803_BroadcomWithIpv6Only", Kind::kBroadcom, ipv6_fabric, {"GID-006"}, "NCCL_IB_ADDR_FAMILY=AF_INET6"},
    {"Mooncake1593_NoSuitableGid",
     Kind::kMlx5,
     [](TestHost& host) { host.no_gid(host.nic(), 2).no_gid(host.nic(), 3); },
     {"GID-001"}},
    {"Mooncake1592_Gid244",
     Kind::kMlx5,
     [](TestHost& host) { host.set("MC_GID_INDEX", "244"); },
     {"GID-004"},
     "MC_GID_INDEX=3"},
    {"JuniperSlaac_Ipv6AndSaid",
     Kind::kBroadcom,
     [](TestHost& host) {
       ipv6_fabric(host);
       host.set("NCCL_IB_ADDR_FAMILY", "AF_INET6");
     },
     {}},
    {"Nccl2013_CrossedRails",
     Kind::kMlx5,
     [](TestHost& host) {
       host.set("NCCL_CROSS_NIC", "1");
       warns(host,
             "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state "
             "RTR, "
             "local GID index 3, local GID ::ffff:192.0.2.10, remote GID ::ffff:198.51.100.20");
     },
     {"NCCL-013", "NET-004", "NET-006"},
     "NCCL_CROSS_NIC=0"},
    {"Ainode89_AutoconfiguredPort",
     Kind::kMlx5,
     [](TestHost& host) {
       host.gid(host.nic(1), 2, "169.254.9.1", "IB/RoCE v1").gid(host.nic(1), 3, "169.254.9.1", "RoCE v2");
     },
     {"GID-009"}},
    {"Aicad1_ImageBringsNcclConf",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file("/etc/nccl.conf", "NCCL_IB_USE_INLINE=1\nNCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS=1\n");
     },
     {"NCCL-003"}},
    {"Index9_RemoteIsLinkLocal",
     Kind::kMlx5,
     [](TestHost& host) {
       warns(host,
             "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state "
             "RTR, "
             "local GID index 3, local GID ::ffff:192.0.2.10, remote GID fe80::e42:a1ff:fe03:9");
     },
     {"NCCL-013"},
     "link-local GID"},
    {"Index15_NoRouteAndNoAnswer",
     Kind::kMlx5,
     [](TestHost& host) {
       host.tool(tool::kNeighbours, "", "192.0.2.40 dev eth2  FAILED\n");
       warns(host,
             "Call to ibv_modify_qp failed with 101 Network is unreachable, on dev mlx5_0:1, curr state INIT, next "
             "state RTR, "
             "local GID index 3, local GID ::ffff:192.0.2.10, remote GID ::ffff:203.0.113.20");
     },
     {"NCCL-013", "NET-005", "NET-006"},
     "203.0.113.20 is in no subnet of eth2"},
    {"Nccl1526_RailsAgainstTheOrderOfGpus",
     Kind::kBroadcom,
     [](TestHost& host) {
       swapped_rails(host);
       warns(host, "NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 10");
     },
     {"NCCL-014", "NET-007"},
     "(1 0)"},
    {"Nccl1755_SameGpuOnAnotherRail", Kind::kMlx5, swapped_rails, {"NET-007"}, "doctor compare"},
    {"Ucx5598_TwoFunctionsInOneSubnet", Kind::kMlx5, one_subnet, {"NET-001"}},
    {"Nccl1269_AllNicsInOneSubnet", Kind::kBroadcom, one_subnet, {"NET-001"}, "arp_ignore"},
    {"Nccl709_OversizedPackets",
     Kind::kMlx5,
     [](TestHost& host) {
       for (const Nic& nic : host.nics())
         host.file(nic.net() + "/mtu", "1500\n").statistics(nic, {{"rx_oversize_pkts_phy", 800}});
       warns(host, "NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129");
     },
     {"MTU-001", "MTU-003", "NCCL-014"}},
    {"Nccl1524_ViolationSince220",
     Kind::kMlx5,
     [](TestHost& host) {
       informs(host, "NCCL version 2.20.3+cuda12.3");
       warns(host, "NET/IB : mlx5_0:1 Got async event : local access violation work queue error");
     },
     {"NCCL-019"},
     "difference in MTU"},
    {"DgxSpark102_HalfOfThePort",
     Kind::kMlx5,
     [](TestHost& host) {
       for (const Nic& nic : host.nics())
         host.file(nic.ib() + "/sys_image_guid", "0c42:a103:0000:0007\n").file(nic.net() + "/mtu", "1500\n");
       models(host, "NVIDIA GB10");
       host.set("NCCL_IB_HCA", "=mlx5_0");
     },
     {"DEV-008", "MTU-001", "PROC-004"}},
    {"DgxSpark25_TrainedAtX2",
     Kind::kMlx5,
     [](TestHost& host) { host.file(kFieldDevices + "0000:5d:00.0/current_link_width", "2\n"); },
     {"LINK-001"},
     "x2"},

    {"Nccl2383_GpuInitiatedUnmarked", Kind::kOfed, gdaki, {"QOS-009"}, "NCCL_GIN_IB_TC=236"},
    {"Nccl2383_Remedied",
     Kind::kOfed,
     [](TestHost& host) {
       gdaki(host);
       host.set("NCCL_GIN_IB_TC", "236");
     },
     {}},
    {"Byteps179_AllInPriority0",
     Kind::kMlx5,
     [](TestHost& host) {
       const Nic& nic = host.nic();
       host.statistics(nic, {{"rx_prio0_bytes", 811'000'000'000}, {"rx_prio3_bytes", 0}});
       host.hw_counter(nic, "local_ack_timeout_err", 2705)
           .hw_counter(nic, "np_cnp_sent", 1333)
           .hw_counter(nic, "np_ecn_marked_roce_packets", 0);
     },
     {"ECN-005", "QOS-005"}},
    {"Nccl394_LossInSpiteOfDcqcn",
     Kind::kMlx5,
     [](TestHost& host) {
       const Nic& nic = host.nic();
       host.hw_counter(nic, "local_ack_timeout_err", 91'316)
           .hw_counter(nic, "out_of_sequence", 6'140'236)
           .hw_counter(nic, "packet_seq_err", 929'974);
       host.hw_counter(nic, "np_cnp_sent", 17'269'947).hw_counter(nic, "np_ecn_marked_roce_packets", 11'293'938);
     },
     {"ECN-006"}},
    {"Ucx6000_RetryCountExceeded",
     Kind::kMlx5,
     [](TestHost& host) {
       for (const Nic& nic : host.nics())
         host.tool(tool::kDcbPfc, nic.netdev, R"({"prio_pfc":[false,false,false,false,false,false,false,false]})")
             .statistics(nic, {{"rx_prio3_pause", 0}});
     },
     {"PFC-001"}},
    {"Ucx11955_EceLeavesDcqcn",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file(host.nic().net() + "/bonding/slaves", "ens1f0 ens1f1\n").set("NCCL_IB_QPS_PER_CONNECTION", "2");
       host.file("/proc/target/maps", "1-2 r-xp 0 08:01 1 /opt/ucx/lib/libucp.so.0.0.0\n");
       host.firmware(host.nic(), "ROCE_CC_LEGACY_DCQCN", "False(0)");
     },
     {"ECN-009"},
     "UCX_RC_ECE=0"},
    {"Ucx11955_Remedied",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file(host.nic().net() + "/bonding/slaves", "ens1f0 ens1f1\n").set("NCCL_IB_QPS_PER_CONNECTION", "2");
       host.file("/proc/target/maps", "1-2 r-xp 0 08:01 1 /opt/ucx/lib/libucp.so.0.0.0\n").set("UCX_RC_ECE", "0");
       host.firmware(host.nic(), "ROCE_CC_LEGACY_DCQCN", "False(0)");
     },
     {}},
    {"Openlldp125_Lldpad",
     Kind::kIntel,
     [](TestHost& host) {
       host.tool(tool::kDaemons, "", "lldpad\n").statistics(host.nic(), {{"link_down_events_phy", 30}});
     },
     {"LINK-003", "QOS-006"}},
    {"Torchcomms3054_SlowReceiver",
     Kind::kMlx5,
     [](TestHost& host) {
       host.statistics(host.nic(), {{"tx_prio3_pause", 88'000'000}});
     },
     {"PFC-005"}},

};

}  // namespace

std::span<const RuleCase> field_cases() { return kFieldCases; }

}  // namespace tensorwire::host::test
