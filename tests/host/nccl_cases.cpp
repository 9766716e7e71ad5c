// NCCL's settings, and its log as it really looks.
#include "host/rule_case.hpp"

namespace tensorwire::host::test {

namespace {

const std::string kHead = "host-a:1201:1201 [0] NCCL INFO ";
const std::string kWarn = "\nhost-a:1201:1377 [0] transport/net_ib.cc:1250 NCCL WARN ";

const std::string kOtherRail =
    "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state RTR, "
    "local GID "
    "index 3, local GID ::ffff:192.0.2.10, remote GID ::ffff:198.51.100.20";

void says(TestHost& host, const std::string& line) { host.log(kHead + line + "\n"); }
void nccl_warns(TestHost& host, const std::string& line) { host.log(kWarn + line + "\n"); }

const std::vector<RuleCase> kNcclCases = {
    {"Disabled", Kind::kMlx5, [](TestHost& host) { host.set("NCCL_IB_DISABLE", "1"); }, {"NCCL-001"}},
    {"NotDisabled", Kind::kMlx5, [](TestHost& host) { host.set("NCCL_IB_DISABLE", "0"); }, {"!NCCL-001"}},
    {"IgnoresMismatch", Kind::kMlx5, [](TestHost& host) { host.set("NCCL_IGNORE_NET_MISMATCH", "1"); }, {"NCCL-002"}},
    {"SettingsInAFile",
     Kind::kMlx5,
     [](TestHost& host) { host.file("/etc/nccl.conf", "# left over\nNCCL_IB_USE_INLINE=1\n"); },
     {"NCCL-003"},
     "NCCL_IB_USE_INLINE=1 (/etc/nccl.conf)"},
    {"HarmlessFile",
     Kind::kMlx5,
     [](TestHost& host) { host.file("/etc/nccl.conf", "NCCL_DEBUG=WARN\n"); },
     {"!NCCL-003"}},
    {"EnvironmentBeforeFile",
     Kind::kMlx5,
     [](TestHost& host) { host.file("/etc/nccl.conf", "NCCL_IB_TC=26\n"); },
     {"!NCCL-003"}},
    {"GinCrash",
     Kind::kBroadcom,
     [](TestHost& host) { says(host, "NCCL version 2.28.9+cuda12.9"); },
     {"NCCL-004"},
     "NCCL_GIN_TYPE=0"},
    {"GinOnMlx5", Kind::kMlx5, [](TestHost& host) { says(host, "NCCL version 2.28.9+cuda12.9"); }, {"!NCCL-004"}},
    {"GinSwitchedOff",
     Kind::kBroadcom,
     [](TestHost& host) {
       says(host, "NCCL version 2.28.9+cuda12.9");
       host.set("NCCL_GIN_TYPE", "0");
     },
     {"!NCCL-004"}},

    {"Sockets",
     Kind::kMlx5,
     [](TestHost& host) {
       says(host, "NET/IB : No device found.");
       says(host, "Using network Socket");
     },
     {"NCCL-010"},
     "nccl.log:2"},
    {"NoLibrary",
     Kind::kMlx5,
     [](TestHost& host) { says(host, "Failed to open libibverbs.so[.1]"); },
     {"NCCL-010"},
     "ibverbs-providers"},
    {"Rdma",
     Kind::kMlx5,
     [](TestHost& host) {
       says(host, "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:203.0.113.7<0>");
       says(host, "Using network IB");
       says(host, "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA");
     },
     {"!NCCL-010"}},
    {"LogOfForeignAbi",
     Kind::kBroadcom,
     [](TestHost& host) {
       host.log(
           "libibverbs: Warning: Driver bnxt_re does not support the kernel ABI of 6 (supports 1 to 1) for device "
           "/sys/class/infiniband/bnxt_re2\n");
     },
     {"NCCL-011"}},
    {"GpuDirectOff",
     Kind::kMlx5,
     [](TestHost& host) { says(host, "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"); },
     {"NCCL-012"}},
    {"GpuDirectOffForOnePairOnly",
     Kind::kMlx5,
     [](TestHost& host) {
       says(host, "GPU Direct RDMA Disabled for GPU 1 / HCA 0 (distance 7 > 4)");
       says(host, "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA");
     },
     {"!NCCL-012"}},
    {"ConnectTimedOut",
     Kind::kMlx5,
     [](TestHost& host) {
       nccl_warns(
           host,
           "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state "
           "RTR, local GID index 3, local GID ::ffff:192.0.2.10, remote GID ::ffff:192.0.2.11");
     },
     {"NCCL-013"},
     "ETIMEDOUT"},
    {"ConnectTimedOutInOldWords",
     Kind::kMlx5,
     [](TestHost& host) { nccl_warns(host, "Call to ibv_modify_qp failed with error Connection timed out"); },
     {"NCCL-013"},
     "cannot be reached"},
    {"ConnectOfAnotherNamespace",
     Kind::kMlx5,
     [](TestHost& host) { nccl_warns(host, "Call to ibv_modify_qp failed with error No such device"); },
     {"NCCL-013"},
     "namespace"},
    {"Timeout",
     Kind::kMlx5,
     [](TestHost& host) {
       nccl_warns(host,
                  "NET/IB: Got completion from peer 192.0.2.11<36291> with status=5 opcode=32542 len=0 vendor err 249 "
                  "(Recv) localGid ::ffff:192.0.2.10");
       nccl_warns(host,
                  "NET/IB: Got completion from peer 192.0.2.11<36291> with status=12 opcode=32542 len=0 vendor err 129 "
                  "(Send) localGid ::ffff:192.0.2.10");
     },
     {"NCCL-014", "!NCCL-015"},
     "status 12"},
    {"FlushesOnly",
     Kind::kMlx5,
     [](TestHost& host) { nccl_warns(host, "NET/IB : Got completion with error 5, opcode 0, len 0, vendor err 249"); },
     {"NCCL-015", "!NCCL-014"}},
    {"NoMemoryToRegister",
     Kind::kMlx5,
     [](TestHost& host) { nccl_warns(host, "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"); },
     {"NCCL-016"},
     "ulimit -l"},
    {"NoDmabuf",
     Kind::kMlx5,
     [](TestHost& host) { nccl_warns(host, "Call to ibv_reg_dmabuf_mr failed with error Operation not supported"); },
     {"NCCL-016"},
     "NCCL_DMABUF_ENABLE=0"},
    {"PortWentDown",
     Kind::kMlx5,
     [](TestHost& host) { nccl_warns(host, "NET/IB : mlx5_0:1 Got async event : port error"); },
     {"NCCL-017"}},
    {"Refused",
     Kind::kMlx5,
     [](TestHost& host) { says(host, "Call to connect returned Connection refused, retrying"); },
     {"NCCL-018"}},
    {"Loopback",
     Kind::kMlx5,
     [](TestHost& host) { says(host, "NET : Using interface lo:127.0.0.1<0>"); },
     {"NCCL-018"},
     "loopback"},

    {"MindsMismatch", Kind::kMlx5, [](TestHost& host) { host.set("NCCL_IGNORE_NET_MISMATCH", "0"); }, {"!NCCL-002"}},
    {"ProviderOfAnotherNicIsMissing",
     Kind::kBroadcom,
     [](TestHost& host) {
       host.log("libibverbs: Warning: couldn't load driver 'libmlx5-rdmav34.so': cannot open shared object file\n");
     },
     {"!NCCL-011"}},
    {"ConnectedAtTheSecondTry",
     Kind::kMlx5,
     [](TestHost& host) {
       says(
           host,
           "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state "
           "RTR, local GID index 3, local GID ::ffff:192.0.2.10, remote GID ::ffff:192.0.2.11, retrying 1/35 after 100 "
           "msec of sleep");
     },
     {"!NCCL-013"}},
    {"OldLibibverbs",
     Kind::kMlx5,
     [](TestHost& host) {
       says(host,
            "dlvsym failed on ibv_reg_dmabuf_mr - /lib/x86_64-linux-gnu/libibverbs.so.1: undefined symbol: "
            "ibv_reg_dmabuf_mr, version IBVERBS_1.12 version IBVERBS_1.12");
     },
     {"!NCCL-016"}},
    {"TableChanged",
     Kind::kMlx5,
     [](TestHost& host) { nccl_warns(host, "NET/IB : mlx5_0:1 Got async event : GID table change"); },
     {"!NCCL-017", "!NCCL-019", "!NCCL-020"}},
    {"MeetsOverEthernet",
     Kind::kMlx5,
     [](TestHost& host) { says(host, "Bootstrap: Using eth0:203.0.113.7<0>"); },
     {"!NCCL-018"}},
    {"LateDataAfterFailover",
     Kind::kMlx5,
     [](TestHost& host) {
       says(host,
            "NET/IB: ncclIbCompletionEventProcess: Receiver got a completion for a data transfer but retrieved an "
            "'unused' request (req=0x7f2c, comm=0x7f2d, id=7, wc.status=success(0))");
     },
     {"!NCCL-021"}},

    {"SettingsOfUcx",
     Kind::kMlx5,
     [](TestHost& host) { host.file("/etc/ucx/ucx.conf", "[Grace]\n# left over\nUCX_IB_TRAFFIC_CLASS=26\n"); },
     {"NCCL-003", "QOS-004"},
     "UCX_IB_TRAFFIC_CLASS=26 (/etc/ucx/ucx.conf)"},
    {"NoRouteToThePeer",
     Kind::kMlx5,
     [](TestHost& host) { nccl_warns(host, kOtherRail); },
     {"NCCL-013", "NET-006"},
     "198.51.100.20 is in no subnet of eth2"},
    {"RouteToThePeerByAGateway",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file("/proc/net/route",
                 "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
                 "eth2\t000200C0\t00000000\t0001\t0\t0\t0\tC0FFFFFF\t0\t0\t0\n"
                 "eth2\t006433C6\t010200C0\t0003\t0\t0\t0\t00FFFFFF\t0\t0\t0\n");
       nccl_warns(host, kOtherRail);
     },
     {"NCCL-013", "!NET-006"}},
};

}  // namespace

std::span<const RuleCase> nccl_cases() { return kNcclCases; }

}  // namespace tensorwire::host::test
