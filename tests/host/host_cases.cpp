// Devices, limits and libraries.
#include <cerrno>

#include "host/rule_case.hpp"
#include "host/tree/tools.hpp"

namespace tensorwire::host::test {

namespace {

void refuse(TestHost& host, const std::string& node, int error) {
  host.tree().put(Ask::kOpens, "/dev/infiniband/" + node, {{}, error});
}

/// Two functions of one card: equal GUIDs, and PCIe links of their own.
void one_card(TestHost& host) {
  for (const Nic& nic : host.nics()) host.file(nic.ib() + "/sys_image_guid", "0c42:a103:0000:0007\n");
}

void third_device(TestHost& host, const std::string& name, const std::string& link_layer) {
  const std::string port = "/sys/class/infiniband/" + name + "/ports/1";
  host.link("/sys/class/infiniband/" + name + "/device", "/sys/devices/pci0000:3a/0000:3d:00.1");
  host.link("/sys/class/infiniband/" + name + "/device/driver", "/sys/bus/pci/drivers/mlx5_core");
  host.file(port + "/state", "4: ACTIVE\n").file(port + "/link_layer", link_layer + "\n").shows(name);
}

const std::vector<RuleCase> kHostCases = {
    {"NoNodes", Kind::kMlx5, [](TestHost& host) { host.gone("/dev/infiniband"); }, {"DEV-001"}, "modprobe ib_uverbs"},
    {"NoNodesInAContainer",
     Kind::kMlx5,
     [](TestHost& host) { host.gone("/dev/infiniband").file("/.dockerenv", ""); },
     {"DEV-001"},
     "--device=/dev/infiniband"},
    {"NodeRefused", Kind::kMlx5, [](TestHost& host) { refuse(host, "uverbs1", EPERM); }, {"DEV-002"}, "EPERM"},
    {"ForeignAbi",
     Kind::kBroadcom,
     [](TestHost& host) { host.file("/sys/class/infiniband_verbs/uverbs0/abi_version", "6\n"); },
     {"DEV-003"}},
    {"OlderAbiOfIrdma",
     Kind::kIntel,
     [](TestHost& host) { host.file("/sys/class/infiniband_verbs/uverbs0/abi_version", "4\n"); },
     {"!DEV-003"}},
    {"NamedPortDown",
     Kind::kMlx5,
     [](TestHost& host) {
       host.set("NCCL_IB_HCA", "=mlx5_0,mlx5_1")
           .file(host.nic().port() + "/state", "1: DOWN\n")
           .file(host.nic().port() + "/phys_state", "3: Disabled\n");
     },
     {"DEV-004"},
     "Disabled"},
    {"SparePortDown",
     Kind::kMlx5,
     [](TestHost& host) { host.file(host.nic().port() + "/state", "1: DOWN\n"); },
     {"!DEV-004"}},
    {"AllPortsDown",
     Kind::kIntel,
     [](TestHost& host) {
       for (const Nic& nic : host.nics()) host.file(nic.port() + "/state", "1: DOWN\n");
     },
     {"DEV-004"}},
    {"MixedFabrics", Kind::kMlx5, [](TestHost& host) { third_device(host, "mlx5_2", "InfiniBand"); }, {"DEV-005"}},
    {"MixedFabricsAndOneExcluded",
     Kind::kMlx5,
     [](TestHost& host) {
       third_device(host, "mlx5_2", "InfiniBand");
       host.set("NCCL_IB_HCA", "^mlx5_2");
     },
     {"!DEV-005"}},
    {"FilterFitsNothing",
     Kind::kBroadcom,
     [](TestHost& host) { host.set("NCCL_IB_HCA", "mlx5"); },
     {"DEV-006"},
     "bnxt_re0, bnxt_re1"},
    {"FilterByPrefix", Kind::kBroadcom, [](TestHost& host) { host.set("NCCL_IB_HCA", "bnxt_re"); }, {"!DEV-006"}},
    {"PrefixFitsMore",
     Kind::kMlx5,
     [](TestHost& host) {
       third_device(host, "mlx5_10", "InfiniBand");
       host.set("NCCL_IB_HCA", "mlx5_0,mlx5_1");
     },
     {"DEV-005", "DEV-007"},
     "NCCL_IB_HCA==mlx5_0,mlx5_1"},
    {"ExactNames",
     Kind::kMlx5,
     [](TestHost& host) {
       third_device(host, "mlx5_10", "InfiniBand");
       host.set("NCCL_IB_HCA", "=mlx5_0,mlx5_1");
     },
     {"!DEV-007"}},
    {"HalfOfACard",
     Kind::kMlx5,
     [](TestHost& host) {
       one_card(host);
       host.set("NCCL_IB_HCA", "=mlx5_0");
     },
     {"DEV-008"},
     "=mlx5_0,mlx5_1"},
    {"OneOfTwoCards", Kind::kMlx5, [](TestHost& host) { host.set("NCCL_IB_HCA", "=mlx5_0"); }, {"!DEV-008"}},
    {"WholeCard", Kind::kMlx5, one_card, {"!DEV-008"}},
    {"NoDevice", Kind::kNone, [](TestHost&) {}, {"DEV-009"}},
    {"VirtualFunction",
     Kind::kMlx5,
     [](TestHost& host) { host.link(host.nic().net() + "/device/physfn", "/sys/devices/pci0000:3a/0000:3d:00.0"); },
     {"DEV-010"}},

    {"LowMemlock",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file("/proc/target/limits",
                 "Max locked memory         65536                65536                bytes     \n");
     },
     {"PROC-001"},
     "64 KiB"},
    {"LowMemlockOfAShell",
     Kind::kMlx5,
     [](TestHost& host) {
       host.set("NCCL_IB_TC", "");
       host.file("/proc/target/limits",
                 "Max locked memory         65536                65536                bytes     \n");
     },
     {"!PROC-001"}},
    {"MemlockOf64GiB",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file("/proc/target/limits",
                 "Max locked memory         68719476736          68719476736          bytes     \n");
     },
     {"!PROC-001"}},
    {"TwoNccls",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file(
           "/proc/target/maps",
           "1-2 r-xp 0 08:01 1 /usr/lib/libnccl.so.2.27.3\n3-4 r-xp 0 08:01 2 /venv/nvidia/nccl/lib/libnccl.so.2\n");
     },
     {"PROC-002"}},
    {"NcclWithPlugin",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file("/proc/target/maps",
                 "1-2 r-xp 0 08:01 1 /usr/lib/libnccl.so.2.27.3\n3-4 r-xp 0 08:01 2 /usr/lib/libnccl-net.so\n");
     },
     {"!PROC-002"}},
    {"TwoVerbsLibraries",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file("/proc/target/maps",
                 "1-2 r-xp 0 08:01 1 /usr/lib/libibverbs.so.1.14\n3-4 r-xp 0 08:01 2 /opt/x/libibverbs.so.1\n");
     },
     {"PROC-003"}},

    {"ContainerWithNodes", Kind::kMlx5, [](TestHost& host) { host.file("/.dockerenv", ""); }, {"!DEV-001"}},
    {"OpeningWasNotTried", Kind::kMlx5, [](TestHost& host) { refuse(host, "uverbs1", kNotRecorded); }, {"!DEV-002"}},
    {"DevicesCannotBeListed",
     Kind::kNone,
     [](TestHost& host) {
       host.tree().put(Ask::kNames, "/sys/class/infiniband", {{}, EACCES});
     },
     {"!DEV-009"}},
    {"PortWithVirtualFunctions",
     Kind::kMlx5,
     [](TestHost& host) { host.link(host.nic().net() + "/device/virtfn0", "/sys/devices/pci0000:3a/0000:3d:00.2"); },
     {"!DEV-010"}},
    {"VerbsLibraryAndProvider",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file("/proc/target/maps",
                 "1-2 r-xp 0 08:01 1 /usr/lib/libibverbs.so.1.14\n3-4 rw-p 0 08:01 1 /usr/lib/libibverbs.so.1.14\n"
                 "5-6 r-xp 0 08:01 2 /usr/lib/libibverbs/libmlx5-rdmav34.so\n");
     },
     {"!PROC-003"}},

    {"ProviderIsMissing",
     Kind::kBroadcom,
     [](TestHost& host) { host.tool(tool::kVerbsDevices, "", "hca_id:\tbnxt_re0\n"); },
     {"DEV-011"},
     "ibverbs-providers"},
    {"UnderTheUserSpaceHca",
     Kind::kMlx5,
     [](TestHost& host) { host.tool(tool::kVerbsDevices, "", "hca_id:\tsoft0\n"); },
     {"!DEV-011"}},
    {"NoLibibverbs",
     Kind::kMlx5,
     [](TestHost& host) {
       host.tree().put(Ask::kTool, tool::kVerbsDevices, {{}, ELIBACC});
     },
     {"DEV-012"}},
    {"LibibverbsWasNotLookedFor",
     Kind::kMlx5,
     [](TestHost& host) {
       host.tree().put(Ask::kTool, tool::kVerbsDevices, {{}, kNotRecorded});
     },
     {"!DEV-012"}},
    {"JobOfAServiceWithASmallLimit",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file("/proc/target/limits",
                 "Max locked memory         65536                65536                bytes     \n");
       host.file("/proc/target/cgroup", "0::/system.slice/trainer.service\n");
       host.file("/etc/systemd/system/trainer.service.d/limits.conf", "[Service]\nLimitMEMLOCK=64K\n");
     },
     {"PROC-001"},
     "systemctl edit trainer.service: [Service] LimitMEMLOCK=infinity"},
    {"ServiceWithASmallLimit",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file("/usr/lib/systemd/system/slurmd.service", "[Service]\nLimitMEMLOCK=infinity\n");
       host.file("/etc/systemd/system/slurmd.service.d/override.conf", "[Service]\nLimitMEMLOCK=8M\n");
     },
     {"PROC-005"},
     "slurmd.service.d/override.conf: LimitMEMLOCK=8M"},
    {"ServiceWhoseSmallLimitIsTakenBack",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file("/usr/lib/systemd/system/slurmd.service", "[Service]\nLimitMEMLOCK=8M\n");
       host.file("/etc/systemd/system/slurmd.service", "[Service]\nExecStart=/usr/sbin/slurmd\n");
       host.file("/usr/lib/systemd/system/docker.service", "[Service]\nLimitMEMLOCK=64K\n");
       host.file("/etc/systemd/system/docker.service.d/rdma.conf", "[Service]\nLimitMEMLOCK=infinity\n");
     },
     {"!PROC-005"}},
};

}  // namespace

std::span<const RuleCase> host_cases() { return kHostCases; }

}  // namespace tensorwire::host::test
