// GPUs, PCIe and the ports' links.
#include "host/rule_case.hpp"
#include "host/tree/tools.hpp"

namespace tensorwire::host::test {

namespace {

const std::string kPciDevices = "/sys/bus/pci/devices/";

void proprietary_driver(TestHost& host) {
  host.file("/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n")
      .cuda_dmabuf(false);
}

void model(TestHost& host, const std::string& name) {
  for (const char* pci : {"0000:3e:00.0", "0000:5e:00.0"}) {
    host.file(std::string{"/proc/driver/nvidia/gpus/"} + pci + "/information", "Model: \t\t " + name + "\n");
  }
}

void small_bar1(TestHost& host) {
  host.file(kPciDevices + "0000:3e:00.0/resource",
            "0x00000000b0000000 0x00000000b0ffffff 0x0000000000040200\n"
            "0x0000021000000000 0x000002100fffffff 0x000000000014220c\n");
}

/// Without root the file ends after the standard header.
void no_root(TestHost& host) {
  for (const char* pci : {"0000:3c:00.0", "0000:3c:01.0", "0000:3d:00.0"})
    host.file(kPciDevices + pci + "/config", std::string(64, '\0'));
}

const std::vector<RuleCase> kGpuDirectCases = {
    {"AcsOnTheWay",
     Kind::kMlx5,
     [](TestHost& host) { host.config("0000:3c:01.0", 0x1d); },
     {"GDR-001"},
     "setpci -s 0000:3c:01.0 ECAP_ACS+0x6.w=0000"},
    {"AcsAboveTheWay", Kind::kMlx5, [](TestHost& host) { host.config("0000:3b:00.0", 0x1d); }, {"!GDR-001"}},
    {"AcsHidden", Kind::kMlx5, no_root, {"!GDR-001", "!GDR-008"}},
    {"IommuTranslates",
     Kind::kMlx5,
     [](TestHost& host) { host.file("/sys/kernel/iommu_groups/7/type", "DMA-FQ\n"); },
     {"GDR-002"},
     "iommu=pt"},
    {"NoPeerMemoryClosedDriver",
     Kind::kMlx5,
     [](TestHost& host) {
       proprietary_driver(host);
       host.gone("/sys/module/nvidia_peermem");
     },
     {"GDR-003"},
     "open kernel modules"},
    {"NoPeerMemoryOldKernel",
     Kind::kOfed,
     [](TestHost& host) {
       host.gone("/sys/module/nvidia_peermem").file("/proc/sys/kernel/osrelease", "5.4.0-1\n").cuda_dmabuf(false);
     },
     {"GDR-003"},
     "modprobe nvidia-peermem"},
    {"DmabufInstead", Kind::kMlx5, [](TestHost& host) { host.gone("/sys/module/nvidia_peermem"); }, {"!GDR-003"}},
    {"PeermemWithoutApi", Kind::kMlx5, proprietary_driver, {"GDR-004"}},
    {"PeermemOfOfed", Kind::kOfed, proprietary_driver, {"!GDR-004"}},
    {"OldNccl",
     Kind::kOfed,
     [](TestHost& host) {
       proprietary_driver(host);
       host.log("gpu1:7:7 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n");
     },
     {"GDR-005"}},
    {"OldNcclWithDmabuf",
     Kind::kOfed,
     [](TestHost& host) { host.log("gpu1:7:7 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"); },
     {"!GDR-005"}},
    {"NcclThatLooks",
     Kind::kOfed,
     [](TestHost& host) {
       proprietary_driver(host);
       host.log("gpu1:7:7 [0] NCCL INFO NCCL version 2.23.4+cuda12.4\n");
     },
     {"!GDR-005"}},
    {"GpuFarAway",
     Kind::kMlx5,
     [](TestHost& host) {
       host.link(kPciDevices + "0000:5e:00.0", "/sys/devices/pci0000:7a/0000:7a:00.0/0000:5e:00.0")
           .file(kPciDevices + "0000:5e:00.0/numa_node", "2\n");
     },
     {"GDR-006"},
     "SYS"},
    {"SmallBar1", Kind::kMlx5, small_bar1, {"GDR-007"}, "256 MiB"},
    {"NoRelaxedOrdering", Kind::kMlx5, [](TestHost& host) { host.config("0000:3d:00.0", -1, false); }, {"GDR-008"}},
    {"GeForce",
     Kind::kMlx5,
     [](TestHost& host) {
       model(host, "NVIDIA GeForce RTX 4090");
       proprietary_driver(host);
       small_bar1(host);
     },
     {"GDR-009"}},
    {"Gb10",
     Kind::kMlx5,
     [](TestHost& host) {
       model(host, "NVIDIA GB10");
       proprietary_driver(host);
       host.gone("/sys/module/nvidia_peermem").file("/proc/meminfo", "CmaTotal:         65536 kB\n");
     },
     {"!GDR-003"}},

    {"NicInASlowSlot",
     Kind::kMlx5,
     [](TestHost& host) { host.file(kPciDevices + "0000:3d:00.0/current_link_width", "8\n"); },
     {"LINK-001"},
     "32 GT/s x8"},
    {"NicTrainedLow",
     Kind::kMlx5,
     [](TestHost& host) { host.file(kPciDevices + "0000:3d:00.0/current_link_speed", "16.0 GT/s PCIe\n"); },
     {"LINK-001"}},
    {"NicOfUnknownSpeed",
     Kind::kMlx5,
     [](TestHost& host) { host.file(kPciDevices + "0000:3d:00.0/current_link_speed", "Unknown\n"); },
     {"!LINK-001"}},
    {"GpuNarrow",
     Kind::kMlx5,
     [](TestHost& host) { host.file(kPciDevices + "0000:3e:00.0/current_link_width", "8\n"); },
     {"LINK-002"}},
    {"GpuIdle",
     Kind::kMlx5,
     [](TestHost& host) { host.file(kPciDevices + "0000:3e:00.0/current_link_speed", "2.5 GT/s PCIe\n"); },
     {"!LINK-002"}},
    {"Flapping",
     Kind::kMlx5,
     [](TestHost& host) {
       host.statistics(host.nic(), {{"link_down_events_phy", 41}});
     },
     {"LINK-003"}},
    {"FlappedWhileBeingSetUp",
     Kind::kMlx5,
     [](TestHost& host) {
       host.statistics(host.nic(), {{"link_down_events_phy", 4}});
     },
     {"!LINK-003"}},
    {"SymbolErrors",
     Kind::kMlx5,
     [](TestHost& host) {
       host.statistics(host.nic(), {{"rx_pcs_symbol_err_phy", 90'000}});
     },
     {"LINK-004"}},
    {"FewSymbolErrors",
     Kind::kMlx5,
     [](TestHost& host) {
       host.statistics(host.nic(), {{"rx_pcs_symbol_err_phy", 9}});
     },
     {"!LINK-004"}},

    {"NoIommu",
     Kind::kMlx5,
     [](TestHost& host) {
       for (const Nic& nic : host.nics()) host.no_link(kPciDevices + nic.pci + "/iommu_group");
     },
     {"!GDR-002"}},
    {"GpuBehindAnotherSwitch",
     Kind::kMlx5,
     [](TestHost& host) {
       host.link(kPciDevices + "0000:5e:00.0",
                 "/sys/devices/pci0000:5a/0000:5a:00.0/0000:5b:00.0/0000:5c:01.0/0000:5f:00.0/0000:5e:00.0");
       host.config("0000:5f:00.0", 0);
     },
     {"!GDR-006"}},
    {"Bar1Of512MiB",
     Kind::kMlx5,
     [](TestHost& host) {
       host.file(kPciDevices + "0000:3e:00.0/resource",
                 "0x00000000b0000000 0x00000000b0ffffff 0x0000000000040200\n"
                 "0x0000021000000000 0x000002101fffffff 0x000000000014220c\n");
     },
     {"!GDR-007"}},
    {"WorkstationCard",
     Kind::kMlx5,
     [](TestHost& host) { model(host, "NVIDIA RTX 6000 Ada Generation"); },
     {"!GDR-009"}},

    {"DmabufRefused",
     Kind::kMlx5,
     [](TestHost& host) {
       host.gone("/sys/module/nvidia_peermem").tool(tool::kDmabuf, "", "mlx5_0 EOPNOTSUPP\nmlx5_1 EPROTONOSUPPORT\n");
     },
     {"GDR-010"},
     "mlx5_0: EOPNOTSUPP"},
    {"DmabufRefusedAndPeermemWorks",
     Kind::kOfed,
     [](TestHost& host) { host.tool(tool::kDmabuf, "", "mlx5_0 EOPNOTSUPP\nmlx5_1 EOPNOTSUPP\n"); },
     {"!GDR-010"}},
    {"CudaOffersNoDmabuf",
     Kind::kMlx5,
     [](TestHost& host) { host.gone("/sys/module/nvidia_peermem").cuda_dmabuf(false); },
     {"GDR-003"},
     "CUDA says that it offers no DMA-BUF"},
    {"CudaWasNotAsked",
     Kind::kMlx5,
     [](TestHost& host) { host.gone("/sys/module/nvidia_peermem").no_tool(tool::kCudaDmabuf, ""); },
     {"!GDR-003"}},
    {"OrderingIsForced",
     Kind::kMlx5,
     [](TestHost& host) { host.firmware(host.nic(), "PCI_WR_ORDERING", "force_relax(1)"); },
     {"GDR-011"},
     "mlxconfig -d 0000:3d:00.0 set PCI_WR_ORDERING=0"},
    {"OrderingIsAskedFor",
     Kind::kMlx5,
     [](TestHost& host) { host.firmware(host.nic(), "PCI_WR_ORDERING", "per_mkey(0)"); },
     {"!GDR-011"}},
    {"Gb10WithoutCma", Kind::kMlx5, [](TestHost& host) { model(host, "NVIDIA GB10"); }, {"PROC-004"}, "CmaTotal"},
    {"Gb10WithCma",
     Kind::kMlx5,
     [](TestHost& host) {
       model(host, "NVIDIA GB10");
       host.file("/proc/meminfo", "MemTotal:  125000000 kB\nCmaTotal:         65536 kB\n");
     },
     {"!PROC-004"}},
};

}  // namespace

std::span<const RuleCase> gpudirect_cases() { return kGpuDirectCases; }

}  // namespace tensorwire::host::test
