// Public bug reports that one host can show: the state that was reported, and what the doctor must say of it.
#include <cerrno>

#include "host/rule_case.hpp"
#include "host/tree/tools.hpp"

namespace tensorwire::host::test {

namespace {

const std::string kDevices = "/sys/bus/pci/devices/";

void warns(TestHost& host, const std::string& line) {
  host.log("host-a:1201:1377 [0] transport/net_ib.cc:1250 NCCL WARN " + line + "\n");
}
void informs(TestHost& host, const std::string& line) { host.log("host-a:1201:1201 [0] NCCL INFO " + line + "\n"); }

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

void closed_driver(TestHost& host) {
  host.file("/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n");
}

void models(TestHost& host, const std::string& name) {
  for (const char* pci : {"0000:3e:00.0", "0000:5e:00.0"}) {
    host.file(std::string{"/proc/driver/nvidia/gpus/"} + pci + "/information", "Model: \t\t " + name + "\n");
  }
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
     [](TestHost& host) { host.file(kDevices + "0000:5d:00.0/current_link_width", "2\n"); },
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

    {"Nccl304_Acs",
     Kind::kMlx5,
     [](TestHost& host) {
       host.config("0000:3c:00.0", 0x1d);
       warns(host, "NET/IB : Got completion with error 4, opcode 1, len 21938, vendor err 81");
     },
     {"GDR-001", "NCCL-014"},
     "setpci -s 0000:3c:00.0"},
    {"Nccl523_BiosSaidOff",
     Kind::kMlx5,
     [](TestHost& host) { host.config("0000:3c:00.0", 0x0d).config("0000:5c:01.0", 0x0c); },
     {"GDR-001"}},
    {"Nccl1737_FlushesAndNoRoot",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file(kDevices + "0000:3c:00.0/config", std::string(64, '\0'));
       warns(host,
             "NET/IB: Got completion from peer 192.0.2.20<40051> with status=5 opcode=129 len=0 vendor err 249 (Recv)");
     },
     {"NCCL-015"}},
    {"Perftest280_DmabufError93",
     Kind::kMlx5,
     [](TestHost& host) { warns(host, "Call to ibv_reg_dmabuf_mr failed with error Protocol not supported"); },
     {"NCCL-016"},
     "DMA-BUF"},
    {"NvPeerMemory79_InboxIbCore",
     Kind::kMlx5,
     [](TestHost& host) {
       closed_driver(host);
       host.gone("/sys/module/nvidia_peermem");
     },
     {"GDR-003"},
     "nvidia-open"},
    {"Talos12021_LoadedInVain", Kind::kMlx5, closed_driver, {"GDR-004"}},
    {"Nccl1939_GdrDisabledThoughLoaded",
     Kind::kMlx5,
     [](TestHost& host) {
       closed_driver(host);
       informs(host, "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'");
     },
     {"GDR-004", "NCCL-012"}},
    {"Nccl1676_OldNcclAndNewPeermem",
     Kind::kOfed,
     [](TestHost& host) {
       closed_driver(host);
       informs(host, "NCCL version 2.22.3+cuda12.6");
       informs(host, "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'");
     },
     {"GDR-005", "NCCL-012"},
     "2.23.4"},
    {"DgxSpark352051_Gb10HasNoGdr",
     Kind::kMlx5,
     [](TestHost& host) {
       models(host, "NVIDIA GB10");
       closed_driver(host);
       host.gone("/sys/module/nvidia_peermem").file("/proc/meminfo", "CmaTotal:         65536 kB\n");
     },
     {}},
    {"Flagcx61_GeForce",
     Kind::kMlx5,
     [](TestHost& host) {
       models(host, "NVIDIA GeForce RTX 3090");
       closed_driver(host);
       host.gone("/sys/module/nvidia_peermem");
     },
     {"GDR-009"}},
    {"Nccl1464_TooFar",
     Kind::kMlx5,
     [](TestHost& host) {
       host.link(kDevices + "0000:3e:00.0", "/sys/devices/pci0000:c0/0000:c0:01.0/0000:3e:00.0")
           .file(kDevices + "0000:3e:00.0/numa_node", "3\n");
       informs(host, "GPU Direct RDMA Disabled for GPU 0 / HCA 0 (distance 7 > 4)");
     },
     {"GDR-006", "NCCL-012"}},
    {"Nccl1285_EpycIommu",
     Kind::kMlx5,
     [](TestHost& host) { host.file("/sys/kernel/iommu_groups/7/type", "DMA\n"); },
     {"GDR-002"}},

    {"Memlock64KiB",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file("/proc/target/limits",
                 "Max locked memory         65536                65536                bytes     \n");
       warns(host, "Call to ibv_reg_mr failed with error Cannot allocate memory");
     },
     {"NCCL-016", "PROC-001"},
     "ulimit memlock=-1"},
    {"Vllm6610_ContainerWithoutDevices",
     Kind::kMlx5,
     [](TestHost& host) {
       host.gone("/dev/infiniband").file("/.dockerenv", "");
       informs(host, "NET/IB : No device found.");
       informs(host, "Using network Socket");
     },
     {"DEV-001", "NCCL-010"},
     "IPC_LOCK"},
    {"Sglang1427_ImageWithoutLibibverbs",
     Kind::kMlx5,
     [](TestHost& host) {
       informs(host, "Failed to open libibverbs.so[.1]");
       informs(host, "Using network Socket");
     },
     {"NCCL-010"},
     "libibverbs1"},
    {"Nccl1591_DisableLeftIn",
     Kind::kMlx5,
     [](TestHost& host) {
       host.set("NCCL_IB_DISABLE", "1");
       informs(host, "Using network Socket");
     },
     {"NCCL-001", "NCCL-010"}},
    {"Sglang16242_ProviderAbi6",
     Kind::kBroadcom,
     [](TestHost& host) {
       for (const char* node : {"uverbs0", "uverbs1"})
         host.file(std::string{"/sys/class/infiniband_verbs/"} + node + "/abi_version", "6\n");
       host.log(
           "libibverbs: Warning: Driver bnxt_re does not support the kernel ABI of 6 (supports 1 to 1) for device "
           "/sys/class/infiniband/bnxt_re2\n");
     },
     {"DEV-003", "NCCL-011"}},
    {"NetnsWithoutNetdev",
     Kind::kMlx5,
     [](TestHost& host) {
       for (const char* name : {"0", "1", "2", "3"})
         host.fails(host.nic().port() + "/gid_attrs/types/" + name, EINVAL)
             .fails(host.nic().port() + "/gid_attrs/ndevs/" + name, EINVAL);
       warns(host, "Call to ibv_modify_qp failed with error No such device");
     },
     {"GID-007", "NCCL-013"}},
    {"Nccl2428_OneNodeRefused",
     Kind::kMlx5,
     [](TestHost& host) {
       host.tree().put(Ask::kOpens, "/dev/infiniband/uverbs1", {{}, EACCES});
       host.set("NCCL_IGNORE_NET_MISMATCH", "1");
     },
     {"DEV-002", "NCCL-002"}},
    {"Nccl622_IrdmaReportsALid",
     Kind::kIntel,
     [](TestHost& host) {
       for (const Nic& nic : host.nics()) host.file(nic.port() + "/lid", "0x1\n");
     },
     {}},
    {"Nccl1412_InfinibandAmongThem",
     Kind::kMlx5,
     [](TestHost& host) { host.file(host.nic(1).port() + "/link_layer", "InfiniBand\n"); },
     {"DEV-005"}},
    {"Nccl1015_BondGivesHalf",
     Kind::kMlx5,
     [](TestHost& host) { host.file(host.nic().net() + "/bonding/slaves", "ens1f0 ens1f1\n"); },
     {"NET-002"}},
    {"Pytorch38702_Loopback",
     Kind::kNone,
     [](TestHost& host) { informs(host, "NET : Using interface lo:127.0.0.1<0>"); },
     {"DEV-009", "NCCL-018"},
     "NCCL_SOCKET_IFNAME"},
    {"Sglang3820_NoRouteToHost",
     Kind::kMlx5,
     [](TestHost& host) {
       warns(host, "socketPollConnect: Connect to 192.0.2.4<56849> returned 113(No route to host) errno 115");
     },
     {"NCCL-018"},
     "firewall"},
    {"Vllm42354_PipAndSystemNccl",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file("/proc/target/maps",
                 "1-2 r-xp 0 08:01 1 /usr/lib/x86_64-linux-gnu/libnccl.so.2.26.2\n"
                 "3-4 r-xp 0 08:01 2 /usr/lib/python3/dist-packages/nvidia/nccl/lib/libnccl.so.2\n");
     },
     {"PROC-002"}},
    {"Nccl2334_LostClearance",
     Kind::kMlx5,
     [](TestHost& host) {
       warns(host, "NET/IB: Receiver got a completion for a CTS but retrieved an 'unused' request");
     },
     {"NCCL-021"},
     "not the fabric"},
    {"NcclTests227_IrdmaHasNoIndex3",
     Kind::kIntel,
     [](TestHost& host) {
       host.set("NCCL_IB_GID_INDEX", "3");
       warns(host, "Call to ibv_modify_qp failed with error Connection timed out");
     },
     {"GID-004", "NCCL-013"},
     "stands at 1"},
    {"Nccl2289_GinOnOtherNics",
     Kind::kIntel,
     [](TestHost& host) { informs(host, "NCCL version 2.28.9+cuda13.0"); },
     {"NCCL-004"}},

    {"Aicad1_NoCma",
     Kind::kMlx5,
     [](TestHost& host) {
       models(host, "NVIDIA GB10");
       warns(host, "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory");
     },
     {"NCCL-016", "PROC-004"},
     "CmaTotal: 0 kB"},
    {"NcclTests112_AcsHalvesTheRate",
     Kind::kMlx5,
     [](TestHost& host) { host.config("0000:3c:00.0", 0x1d).config("0000:3c:01.0", 0x1d); },
     {"GDR-001"},
     "halves"},
    {"Nccl778_DmabufNotSupported",
     Kind::kMlx5,
     [](TestHost& host) {
       host.gone("/sys/module/nvidia_peermem").tool(tool::kDmabuf, "", "mlx5_0 EOPNOTSUPP\nmlx5_1 EOPNOTSUPP\n");
       warns(host, "Call to ibv_reg_dmabuf_mr failed with error Operation not supported");
     },
     {"GDR-010", "NCCL-016"},
     "NCCL_DMABUF_ENABLE=0"},
    {"AksRdma36_FlatTreeOfAVirtualMachine",
     Kind::kMlx5,
     [](TestHost& host) {
       host.tool(tool::kHypervisor, "", "hypervisor\n");
       host.link(kDevices + "0000:3e:00.0", "/sys/devices/pci0000:c0/0000:3e:00.0")
           .file(kDevices + "0000:3e:00.0/numa_node", "3\n");
     },
     {"GDR-006"},
     "NCCL_TOPO_FILE"},
    {"DevicePlugin93_OnlySomeNodesAreMounted",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file("/.dockerenv", "").gone("/dev/infiniband/uverbs1");
       host.tree().put(Ask::kOpens, "/dev/infiniband/uverbs1", {{}, ENOENT});
     },
     {"DEV-002"},
     "ENOENT"},
    {"NcclTests263_NamesArePrefixes",
     Kind::kMlx5,
     [](TestHost& host) {
       const std::string port = "/sys/class/infiniband/mlx5_10/ports/1";
       host.file(port + "/state", "4: ACTIVE\n").file(port + "/link_layer", "Ethernet\n").shows("mlx5_10");
       host.set("NCCL_IB_HCA", "mlx5_1");
     },
     {"DEV-007"},
     "NCCL_IB_HCA==mlx5_1"},
    {"Perftest284_PausesAtTheSenderAreAsTheyShouldBe",
     Kind::kMlx5,
     [](TestHost& host) {
       host.statistics(host.nic(), {{"rx_prio3_pause", 9'000'000}});
     },
     {"!PFC-006"}},
};

}  // namespace

std::span<const RuleCase> field_cases() { return kFieldCases; }

}  // namespace tensorwire::host::test
