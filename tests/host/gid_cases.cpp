// Addresses and interfaces.
#include <array>
#include <cerrno>

#include "host/rule_case.hpp"
#include "host/tree/tools.hpp"

namespace tensorwire::host::test {

namespace {

void only_link_local(TestHost& host) {
  for (const Nic& nic : host.nics()) host.no_gid(nic, 2).no_gid(nic, 3);
}

void ipv6_only(TestHost& host) {
  for (const Nic& nic : host.nics())
    host.gid(nic, 2, "2001:db8::10", "IB/RoCE v1").gid(nic, 3, "2001:db8::10", "RoCE v2");
}

/// The IPv4 entry of the second device moves from 3 to 5, and 3 becomes a hole.
void drift(TestHost& host) {
  host.no_gid(host.nic(1), 2).no_gid(host.nic(1), 3);
  host.gid(host.nic(1), 4, host.nic(1).address, "IB/RoCE v1").gid(host.nic(1), 5, host.nic(1).address, "RoCE v2");
}

void foreign_namespace(TestHost& host) {
  for (unsigned index = 0; index < 4; ++index) {
    host.fails(host.nic().port() + "/gid_attrs/types/" + std::to_string(index), EINVAL);
    host.fails(host.nic().port() + "/gid_attrs/ndevs/" + std::to_string(index), EINVAL);
  }
}

void two_in_one_subnet(TestHost& host) {
  host.file("/proc/net/route",
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
            "eth2\t000200C0\t00000000\t0001\t0\t0\t0\tC0FFFFFF\t0\t0\t0\neth3\t000200C0\t00000000\t0001\t0\t0\t0\tC0FFF"
            "FFF\t0\t0\t0\n");
}

const std::string kPciFolder = "/sys/bus/pci/devices/";

/// 192.0.2.0/26 on the first interface, 198.51.100.0/26 on the second.
void routes_in_order(TestHost& host, const std::array<const char*, 2>& netdevs) {
  host.file("/proc/net/route",
            std::string{"Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"} +
                netdevs[0] + "\t000200C0\t00000000\t0001\t0\t0\t0\tC0FFFFFF\t0\t0\t0\n" + netdevs[1] +
                "\t006433C6\t00000000\t0001\t0\t0\t0\tC0FFFFFF\t0\t0\t0\n");
}

const std::vector<RuleCase> kGidCases = {
    {"OnlyLinkLocal", Kind::kMlx5, only_link_local, {"GID-001"}, "ip address add"},
    {"NoGidsAtAll",
     Kind::kIntel,
     [](TestHost& host) { host.no_gid(host.nic(), 0).no_gid(host.nic(), 1); },
     {"GID-001"}},
    {"PortDownNeedsNoGid",
     Kind::kMlx5,
     [](TestHost& host) {
       host.no_gid(host.nic(), 2).no_gid(host.nic(), 3).file(host.nic().port() + "/state", "1: DOWN\n");
     },
     {"!GID-001"}},
    {"PinnedV1", Kind::kMlx5, [](TestHost& host) { host.set("NCCL_IB_GID_INDEX", "2"); }, {"GID-002"}, "RoCE v1"},
    {"PinnedLinkLocal",
     Kind::kIntel,
     [](TestHost& host) { host.set("NCCL_IB_GID_INDEX", "0"); },
     {"GID-003"},
     "link-local"},
    {"PinnedRight",
     Kind::kMlx5,
     [](TestHost& host) { host.set("NCCL_IB_GID_INDEX", "3"); },
     {"!GID-002", "!GID-003", "!GID-004"}},
    {"PinnedHexadecimal", Kind::kMlx5, [](TestHost& host) { host.set("NCCL_IB_GID_INDEX", "0x3"); }, {"!GID-008"}},
    {"PinnedAutomatic", Kind::kMlx5, [](TestHost& host) { host.set("NCCL_IB_GID_INDEX", "-1"); }, {"!GID-008"}},
    {"HabitOfIndex3",
     Kind::kBroadcom,
     [](TestHost& host) { host.set("NCCL_IB_GID_INDEX", "3"); },
     {"GID-004"},
     "stands at 1"},
    {"PinnedBeyondTheTable",
     Kind::kMlx5,
     [](TestHost& host) { host.set("UCX_IB_GID_INDEX", "300"); },
     {"GID-004"},
     "UCX_IB_GID_INDEX=3"},
    {"Drift",
     Kind::kMlx5,
     [](TestHost& host) {
       drift(host);
       host.set("NCCL_IB_GID_INDEX", "3");
     },
     {"GID-004", "GID-005"},
     "stands at 5"},
    {"DriftWithoutPin", Kind::kMlx5, drift, {"!GID-005"}},
    {"DriftOfADeviceThatIsNotUsed",
     Kind::kMlx5,
     [](TestHost& host) {
       drift(host);
       host.set("NCCL_IB_GID_INDEX", "3").set("NCCL_IB_HCA", "=mlx5_0");
     },
     {"!GID-005"}},
    {"Ipv6Only", Kind::kMlx5, ipv6_only, {"GID-006"}, "AF_INET6"},
    {"Ipv6OnlyAndSaid",
     Kind::kMlx5,
     [](TestHost& host) {
       ipv6_only(host);
       host.set("NCCL_IB_ADDR_FAMILY", "AF_INET6");
     },
     {"!GID-006"}},
    {"OtherNamespace", Kind::kMlx5, foreign_namespace, {"GID-007"}, "another network namespace"},
    {"PartlyOtherNamespace",
     Kind::kMlx5,
     [](TestHost& host) {
       host.gid(host.nic(), 4, "203.0.113.1", "x").fails(host.nic().port() + "/gid_attrs/types/4", EINVAL);
     },
     {"GID-010", "!GID-007"},
     "/gid_attrs/types/4: Invalid argument (EINVAL)"},
    {"PartlyOtherNamespaceInSharedMode",
     Kind::kMlx5,
     [](TestHost& host) {
       host.gid(host.nic(), 4, "203.0.113.1", "x").fails(host.nic().port() + "/gid_attrs/types/4", EINVAL);
       host.file("/sys/module/ib_core/parameters/netns_mode", "Y\n");
     },
     {"GID-010"},
     "netns shared"},
    {"UnreadableEntryOfAnExclusiveDevice",
     Kind::kMlx5,
     [](TestHost& host) {
       host.gid(host.nic(), 4, "203.0.113.1", "x").fails(host.nic().port() + "/gid_attrs/types/4", EINVAL);
       host.tool(tool::kRdmaSystem, "", "netns exclusive copy-on-fork on\n");
     },
     {"!GID-010"}},
    {"OtherNamespaceOfAnExclusiveDevice",
     Kind::kMlx5,
     [](TestHost& host) {
       foreign_namespace(host);
       host.file("/sys/module/ib_core/parameters/netns_mode", "N\n");
     },
     {"GID-007"},
     "rdma dev set mlx5_0 netns"},
    {"PinIsAWord",
     Kind::kMlx5,
     [](TestHost& host) { host.set("NCCL_IB_GID_INDEX", "auto"); },
     {"GID-008"},
     "becomes 0"},
    {"PinIsOctal", Kind::kMlx5, [](TestHost& host) { host.set("NCCL_IB_GID_INDEX", "03"); }, {"GID-008"}, "becomes 3"},
    {"SelfAssigned",
     Kind::kMlx5,
     [](TestHost& host) {
       host.gid(host.nic(), 2, "169.254.7.7", "IB/RoCE v1").gid(host.nic(), 3, "169.254.7.7", "RoCE v2");
     },
     {"GID-009"}},
    {"UnreadableTable",
     Kind::kMlx5,
     [](TestHost& host) { host.fails(host.nic().port() + "/gids/3", EACCES); },
     {"!GID-001"}},

    {"OneSubnet", Kind::kMlx5, two_in_one_subnet, {"NET-001"}, "192.0.2.0/26"},
    {"OneSubnetWithStrictArp",
     Kind::kMlx5,
     [](TestHost& host) {
       two_in_one_subnet(host);
       for (const Nic& nic : host.nics()) {
         host.file("/proc/sys/net/ipv4/conf/" + nic.netdev + "/arp_ignore", "1\n");
         host.file("/proc/sys/net/ipv4/conf/" + nic.netdev + "/arp_announce", "2\n");
       }
     },
     {"!NET-001"}},
    {"Bond",
     Kind::kOfed,
     [](TestHost& host) { host.file(host.nic().net() + "/bonding/slaves", "eth8 eth9\n"); },
     {"NET-002"},
     "QPS_PER_CONNECTION=2"},
    {"BondWithFourQueuePairs",
     Kind::kOfed,
     [](TestHost& host) {
       host.file(host.nic().net() + "/bonding/slaves", "eth8 eth9\n").set("NCCL_IB_QPS_PER_CONNECTION", "4");
     },
     {"!NET-002"}},
    {"SocketInterfaceIsMissing",
     Kind::kMlx5,
     [](TestHost& host) { host.set("NCCL_SOCKET_IFNAME", "ens3"); },
     {"NET-003"}},
    {"GlooKnowsNoPrefixes", Kind::kMlx5, [](TestHost& host) { host.set("GLOO_SOCKET_IFNAME", "eth"); }, {"NET-003"}},
    {"SocketInterfaceByPrefix",
     Kind::kMlx5,
     [](TestHost& host) { host.set("NCCL_SOCKET_IFNAME", "ens3,eth"); },
     {"!NET-003"}},
    {"CrossedRails", Kind::kMlx5, [](TestHost& host) { host.set("NCCL_CROSS_NIC", "1"); }, {"NET-004"}},
    {"CrossedPortsOfOneSubnet",
     Kind::kMlx5,
     [](TestHost& host) {
       two_in_one_subnet(host);
       host.set("NCCL_CROSS_NIC", "1");
     },
     {"NET-001", "!NET-004"}},

    {"StrictForAllButWithASourceCheck",
     Kind::kMlx5,
     [](TestHost& host) {
       two_in_one_subnet(host);
       for (const auto& [name, value] : {std::pair{"arp_ignore", "1\n"}, {"arp_announce", "2\n"}, {"rp_filter", "1\n"}})
         host.file(std::string{"/proc/sys/net/ipv4/conf/all/"} + name, value);
     },
     {"NET-001"},
     "ip rule add from 192.0.2.10 table 101"},
    {"StrictForAll",
     Kind::kMlx5,
     [](TestHost& host) {
       two_in_one_subnet(host);
       for (const auto& [name, value] : {std::pair{"arp_ignore", "1\n"}, {"arp_announce", "2\n"}})
         host.file(std::string{"/proc/sys/net/ipv4/conf/all/"} + name, value);
     },
     {"!NET-001"}},
    {"RailsCrossed",
     Kind::kMlx5,
     [](TestHost& host) {
       routes_in_order(host, {"eth3", "eth2"});
     },
     {"NET-007"},
     "(1 0)"},
    {"RailsInOrderWhateverTheNames",
     Kind::kMlx5,
     [](TestHost& host) {
       // The device and interface of the first GPU have the later names.
       routes_in_order(host, {"eth3", "eth2"});
       host.link(kPciFolder + "0000:3e:00.0",
                 "/sys/devices/pci0000:5a/0000:5a:00.0/0000:5b:00.0/0000:5c:01.0/0000:3e:00.0");
       host.link(kPciFolder + "0000:5e:00.0",
                 "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:01.0/0000:5e:00.0");
     },
     {"!NET-007"}},
    {"TwoNicsEquallyNear",
     Kind::kMlx5,
     [](TestHost& host) {
       routes_in_order(host, {"eth3", "eth2"});
       host.link(kPciFolder + "0000:5d:00.0",
                 "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:02.0/0000:5d:00.0");
       host.link(kPciFolder + "0000:5e:00.0",
                 "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:03.0/0000:5e:00.0");
       host.config("0000:3c:02.0", 0).config("0000:3c:03.0", 0);
     },
     {"!NET-007"}},

    {"SelfAssignedOnAnUnusedPort",
     Kind::kMlx5,
     [](TestHost& host) {
       host.gid(host.nic(1), 2, "169.254.7.7", "IB/RoCE v1").gid(host.nic(1), 3, "169.254.7.7", "RoCE v2");
       host.set("NCCL_IB_HCA", "=mlx5_0");
     },
     {"!GID-009"}},

    {"TwoPortsInOneIpv6Subnet",
     Kind::kMlx5,
     [](TestHost& host) {
       const std::string subnet =
           "20010db8000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 "
           "00000100 00000002 00000000 00000001     ";
       host.file("/proc/net/ipv6_route", subnet + "eth2\n" + subnet + "eth3\n");
     },
     {"!NET-001"}},
    {"NobodyAnswers",
     Kind::kMlx5,
     [](TestHost& host) {
       host.tool(tool::kNeighbours, "", "192.0.2.11 dev eth2  FAILED\n192.0.2.12 dev eth2 STALE\n");
     },
     {"NET-005"},
     "192.0.2.11 dev eth2 FAILED"},
    {"NobodyAnswersElsewhere",
     Kind::kMlx5,
     [](TestHost& host) {
       host.tool(tool::kNeighbours, "",
                 "203.0.113.1 dev eth0 FAILED\nfe80::1 dev eth2 INCOMPLETE\n192.0.2.12 dev eth2 STALE\n");
     },
     {"!NET-005"}},
};

}  // namespace

std::span<const RuleCase> gid_cases() { return kGidCases; }

}  // namespace tensorwire::host::test
