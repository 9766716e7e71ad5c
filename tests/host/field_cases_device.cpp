// Public bug reports that one host can show: GPUDirect, limits, containers, devices, and ranks that do not meet.
#include <cerrno>

#include "host/field_words.hpp"
#include "host/rule_case.hpp"
#include "host/tree/tools.hpp"

namespace tensorwire::host::test {

namespace {

const std::vector<RuleCase> kDeviceFieldCases = {
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
       host.file(kFieldDevices + "0000:3c:00.0/config", std::string(64, '\0'));
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
       host.link(kFieldDevices + "0000:3e:00.0", "/sys/devices/pci0000:c0/0000:c0:01.0/0000:3e:00.0")
           .file(kFieldDevices + "0000:3e:00.0/numa_node", "3\n");
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
       host.link(kFieldDevices + "0000:3e:00.0", "/sys/devices/pci0000:c0/0000:3e:00.0")
           .file(kFieldDevices + "0000:3e:00.0/numa_node", "3\n");
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
    {"Nccl531_OrderingForced",
     Kind::kMlx5,
     [](TestHost& host) {
       host.firmware(host.nic(), "PCI_WR_ORDERING", "force_relax(1)");
       informs(host, "NCCL version 2.7.8+cuda11.0");
     },
     {"GDR-011"},
     "2.7.8"},
    {"Index42_BadAddress",
     Kind::kMlx5,
     [](TestHost& host) {
       closed_driver(host);
       host.gone("/sys/module/nvidia_peermem");
       warns(host, "Call to ibv_reg_mr_iova2 failed with error Bad address");
     },
     {"GDR-003", "NCCL-016"},
     "no peer memory module"},
    {"Index51_Bar1IsFull",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file(kFieldDevices + "0000:3e:00.0/resource",
                 "0x00000000b0000000 0x00000000b0ffffff 0x0000000000040200\n"
                 "0x0000021000000000 0x000002100fffffff 0x000000000014220c\n");
       warns(host, "Call to ibv_reg_mr failed with error Cannot allocate memory");
     },
     {"GDR-007", "NCCL-016"},
     "256 MiB"},
    {"Ucx11048_ProtectionWithoutAcs",
     Kind::kBroadcom,
     [](TestHost& host) { warns(host, "NET/IB : Got completion with error 4, opcode 1, len 4096, vendor err 81"); },
     {"NCCL-014"}},
};

}  // namespace

std::span<const RuleCase> device_field_cases() { return kDeviceFieldCases; }

}  // namespace tensorwire::host::test
