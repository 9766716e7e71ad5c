// Whether a NIC reaches GPU memory, and on which way.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "host/parse/text.hpp"
#include "host/rules/groups.hpp"
#include "host/rules/queries.hpp"
#include "host/rules/remedies.hpp"

namespace tensorwire::host {

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

/// GeForce cards cannot, so there is nothing to mend on their way to a NIC.
bool is_geforce(const Gpu& gpu) { return gpu.model && gpu.model->find("GeForce") != std::string::npos; }

/// The GPU of GB10 shares memory with the CPU: that GPUDirect is off there is the platform's way.
bool is_integrated(const Gpu& gpu) { return gpu.model && gpu.model->find("GB10") != std::string::npos; }

bool wants_gpudirect(const Host& host) {
  return !host.nics.empty() &&
         std::ranges::any_of(host.gpus, [](const Gpu& gpu) { return !is_geforce(gpu) && !is_integrated(gpu); });
}

/// The bridges that peer-to-peer traffic of a GPU and a NIC passes: below the last one that both have in common. Pairs
/// on different host bridges do not talk that way.
std::vector<const PciBridge*> bridges_between(const Host& host) {
  std::vector<const PciBridge*> passed;
  const auto add = [&](const std::vector<std::string>& path, std::size_t from) {
    for (std::size_t i = from; i < path.size(); ++i) {
      const PciBridge* bridge = host.bridge(path[i]);
      if (bridge != nullptr && std::ranges::find(passed, bridge) == passed.end()) passed.push_back(bridge);
    }
  };
  for (const Gpu& gpu : host.gpus) {
    for (const PciDevice& nic : host.nics) {
      if (distance(gpu.pci, nic).value_or(Distance::kSys) > Distance::kPhb) continue;
      const auto& one = gpu.pci.path->bridges;
      const auto& other = nic.path->bridges;
      const auto common = static_cast<std::size_t>(std::ranges::mismatch(one, other).in1 - one.begin());
      add(one, common);
      add(other, common);
    }
  }
  return passed;
}

void acs_redirects(const Host& host, Judgement& judgement) {
  if (!wants_gpudirect(host)) return;
  std::vector<std::string> seen;
  std::string commands;
  for (const PciBridge* bridge : bridges_between(host)) {
    if (!bridge->acs) {
      judgement.unknown("access control (ACS) of bridge " + bridge->address, bridge->acs);
      continue;
    }
    if (!bridge->acs->redirects()) continue;
    seen.push_back(
        evidence(bridge->acs, fmt::format("ACSCtl {:#06x} (redirects to the root complex)", bridge->acs->control)));
    commands += fmt::format("{}setpci -s {} ECAP_ACS+0x6.w=0000", commands.empty() ? "" : "; ", bridge->address);
  }
  if (seen.empty()) return;
  judgement.found(
      Confidence::kCertain, "PCIe",
      "bridges between GPU and NIC send peer-to-peer traffic up to the root complex (access control services): "
      "it halves GPUDirect's rate, or ends in completions with error 4 or a hang",
      commands + " (at each boot, or in the BIOS)", seen);
}

void iommu_translates(const Host& host, Judgement& judgement) {
  if (!wants_gpudirect(host)) return;
  std::vector<std::string> seen;
  for (const PciDevice& nic : host.nics) {
    if (!nic.iommu_type) judgement.unknown("IOMMU type of " + nic.address, nic.iommu_type);
    if (nic.iommu_type && nic.iommu_type->starts_with("DMA")) seen.push_back(evidence(nic.iommu_type, *nic.iommu_type));
  }
  if (seen.empty()) return;
  judgement.found(
      Confidence::kLikely, "IOMMU",
      "the IOMMU translates the NIC's addresses: every access to GPU memory goes over the root complex, and "
      "slowly",
      "iommu=pt on the kernel's command line, or the IOMMU off in the BIOS", seen);
}

/// "5.15.0-105-generic" is at least 5.12.
bool kernel_has_dmabuf(const Fact<std::string>& kernel) {
  if (!kernel) return true;
  const auto parts = split(*kernel, '.');
  const int major = parts.empty() ? 0 : leading_number(parts[0]).value_or(0);
  const int minor = parts.size() < 2 ? 0 : leading_number(parts[1]).value_or(0);
  return major > 5 || (major == 5 && minor >= 12);
}

/// The NVIDIA driver offers memory as DMA-BUF.
bool offers_dmabuf(const Host& host) {
  const GpuDriver& driver = host.gpu_driver;
  if (driver.cuda_dmabuf) return *driver.cuda_dmabuf;
  return driver.open_kernel_modules.is(true) && kernel_has_dmabuf(host.kernel);
}

/// The RDMA devices whose driver takes none; asked of the driver itself, which is not always possible.
std::vector<std::string> refusing_dmabuf(const Host& host) {
  std::vector<std::string> seen;
  for (const RdmaDevice& device : host.rdma.value_or({})) {
    if (!device.pci_address) continue;
    if (device.dmabuf_error.is("EOPNOTSUPP") || device.dmabuf_error.is("EPROTONOSUPPORT"))
      seen.push_back(evidence(device.dmabuf_error, device.name + ": " + *device.dmabuf_error));
  }
  return seen;
}

bool has_dmabuf(const Host& host) { return offers_dmabuf(host) && refusing_dmabuf(host).empty(); }

void no_way_to_gpu_memory(const Host& host, Judgement& judgement) {
  if (!wants_gpudirect(host) || !host.gpu_driver.version) return;
  const GpuDriver& driver = host.gpu_driver;
  if (driver.legacy_peermem.value_or(false) || driver.nvidia_peermem.value_or(false)) return;
  if (offers_dmabuf(host)) return;
  if (!driver.legacy_peermem || !driver.nvidia_peermem) {
    judgement.unknown("peer memory modules", driver.nvidia_peermem ? driver.legacy_peermem : driver.nvidia_peermem);
    return;
  }
  const bool closed = driver.open_kernel_modules.is(false);
  judgement.found(
      Confidence::kCertain, "GPUDirect",
      fmt::format("no NIC can register GPU memory: no peer memory module is loaded, and {}",
                  closed                           ? "DMA-BUF needs the open kernel modules of the NVIDIA driver"
                  : kernel_has_dmabuf(host.kernel) ? "CUDA says that it offers no DMA-BUF"
                                                   : "DMA-BUF needs a kernel of 5.12 or later"),
      driver.peer_memory_api.is(true)
          ? "modprobe nvidia-peermem"
          : "install the open kernel modules (nvidia-open); this kernel's ib_core has no peer memory interface, "
            "so nvidia-peermem would need MLNX_OFED, installed before the GPU driver",
      {evidence(driver.legacy_peermem, "not there"), evidence(driver.nvidia_peermem, "not there"),
       evidence(driver.open_kernel_modules, closed ? "no open kernel modules" : "open kernel modules"),
       driver.cuda_dmabuf ? evidence(driver.cuda_dmabuf, *driver.cuda_dmabuf ? "1" : "0") : "CUDA was not asked",
       host.kernel ? evidence(host.kernel, *host.kernel) : "kernel version unknown"});
}

void peermem_without_api(const Host& host, Judgement& judgement) {
  const GpuDriver& driver = host.gpu_driver;
  if (!wants_gpudirect(host) || !driver.nvidia_peermem.is(true) || !driver.peer_memory_api.is(false)) return;
  if (!driver.open_kernel_modules || has_dmabuf(host)) return;
  judgement.found(Confidence::kLikely, "GPUDirect",
                  "nvidia-peermem is loaded, but this kernel's ib_core has no interface for it: the module was built "
                  "against another ib_core and does nothing",
                  "install MLNX_OFED, then the GPU driver again; or use the open kernel modules and DMA-BUF",
                  {evidence(driver.nvidia_peermem,
                            driver.peermem_users ? fmt::format("loaded, {} users", *driver.peermem_users) : "loaded"),
                   evidence(driver.peer_memory_api, "ib_register_peer_memory_client is absent")});
}

/// Of major version 2, below a minor one.
bool is_older_nccl(const std::string& version, int minor) {
  const auto parts = split(version, '.');
  return parts.size() >= 2 && leading_number(parts[0]).value_or(0) == 2 &&
         leading_number(parts[1]).value_or(99) < minor;
}

void nccl_overlooks_peermem(const Host& host, Judgement& judgement) {
  const GpuDriver& driver = host.gpu_driver;
  if (!wants_gpudirect(host) || !host.nccl_log || host.nccl_log->version.empty()) return;
  const auto parts = split(host.nccl_log->version, '.');
  const int minor = parts.size() < 2 ? 99 : leading_number(parts[1]).value_or(99);
  const int patch = parts.size() < 3 ? 0 : leading_number(parts[2]).value_or(0);
  const bool old = leading_number(parts[0]).value_or(0) == 2 && (minor < 22 || (minor == 22 && patch <= 3));
  if (!old || !driver.open_kernel_modules || has_dmabuf(host) || !driver.nvidia_peermem.is(true) ||
      !driver.legacy_peermem.is(false))
    return;
  judgement.found(
      Confidence::kCertain, "NCCL",
      "NCCL up to 2.22.3 looks for peer memory under /sys/kernel/mm/memory_peers only, where nvidia-peermem "
      "does not appear: it leaves GPUDirect off",
      "NCCL 2.23.4 or later",
      {fmt::format("{}: NCCL version {}", host.nccl_log->path, host.nccl_log->version),
       evidence(driver.nvidia_peermem, "loaded"), evidence(driver.legacy_peermem, "not there")});
}

void gpu_far_from_nics(const Host& host, Judgement& judgement) {
  for (const PortView& view : all_ports(host)) {
    if (view.is_software() || view.device->pci_address) continue;
    judgement.unknown("PCI address of " + view.device->name, view.device->pci_address);
    return;  // it may be the near one
  }
  for (const Gpu& gpu : host.gpus) {
    if (is_geforce(gpu) || is_integrated(gpu) || host.nics.empty()) continue;
    std::optional<Distance> nearest;
    std::string where;
    for (const PciDevice& nic : host.nics) {
      const auto far = distance(gpu.pci, nic);
      if (!far) {
        judgement.unknown("distance of GPU " + gpu.pci.address + " and NIC " + nic.address, far);
        nearest = Distance::kPix;  // no verdict
      } else if (!nearest || *far < *nearest) {
        nearest = *far;
        where = evidence(far, to_string(*far));
      }
    }
    if (!nearest || *nearest <= Distance::kPhb) continue;
    judgement.found(
        Confidence::kLikely, "GPU " + gpu.pci.address,
        fmt::format("its nearest NIC is {} away, over the link between {}: NCCL does not use GPUDirect beyond "
                    "PXB by default",
                    to_string(*nearest), *nearest == Distance::kSys ? "CPU sockets" : "host bridges"),
        host.virtual_machine.value_or(false)
            ? "in a virtual machine the tree is not that of the hardware: NCCL_TOPO_FILE=the provider's topology file"
            : "put a NIC below the same PCIe switch; where the platform is known to pass peer-to-peer traffic, "
              "NCCL_NET_GDR_LEVEL=SYS",
        {where});
  }
}

void small_bar1(const Host& host, Judgement& judgement) {
  for (const Gpu& gpu : host.gpus) {
    const auto& size = gpu.pci.bar1_bytes;
    if (is_geforce(gpu) || is_integrated(gpu) || host.nics.empty() || !size || *size == 0 || *size > 256 * kMiB)
      continue;
    judgement.found(
        Confidence::kLikely, "GPU " + gpu.pci.address,
        fmt::format("BAR 1 is {} MiB: registrations of GPU memory beyond that fail with ENOMEM", *size / kMiB),
        "enable \"Above 4G decoding\" and resizable BAR in the BIOS",
        {evidence(size, fmt::format("BAR 1 of {} bytes", *size))});
  }
}

/// The RDMA device of a NIC.
const RdmaDevice* rdma_at(const Host& host, std::string_view pci_address) {
  if (!host.rdma) return nullptr;
  for (const RdmaDevice& device : *host.rdma) {
    if (device.pci_address && *device.pci_address == pci_address) return &device;
  }
  return nullptr;
}

void forced_relaxed_ordering(const Host& host, Judgement& judgement) {
  for (const RdmaDevice& device : host.rdma.value_or({})) {
    const auto& firmware = device.firmware_settings;
    if (!firmware) continue;
    const auto ordering = firmware->find("PCI_WR_ORDERING");
    if (ordering == firmware->end() || !ordering->second.starts_with("force_relax")) continue;
    // 2.7 is the version that a public report has it of.
    const bool old = host.nccl_log && is_older_nccl(host.nccl_log->version, 8);
    std::vector<std::string> seen{evidence(firmware, "PCI_WR_ORDERING " + ordering->second)};
    if (old) seen.push_back(fmt::format("{}: NCCL version {}", host.nccl_log->path, host.nccl_log->version));
    judgement.found(
        old ? Confidence::kLikely : Confidence::kPossible, device.name,
        "the firmware relaxes the order of all writes, also of those whose program relies on it: a flag can arrive "
        "before the data that it stands for, which software not built for that takes for corrupt data "
        "(\"collective mismatch\")",
        set_firmware(device, "PCI_WR_ORDERING", 0) + "; programs that can do with it ask for it themselves", seen);
  }
}

void no_relaxed_ordering(const Host& host, Judgement& judgement) {
  if (!wants_gpudirect(host)) return;
  for (const PciDevice& nic : host.nics) {
    if (!nic.relaxed_ordering.is(false)) continue;
    const RdmaDevice* rdma = rdma_at(host, nic.address);
    const std::string in_firmware = rdma != nullptr && rdma->family == NicFamily::kMlx5
                                        ? "; with mlx5 also " + set_firmware(*rdma, "PCI_WR_ORDERING", 0)
                                        : "";
    judgement.found(
        Confidence::kPossible, "NIC " + nic.address,
        "the NIC may not use relaxed ordering: on EPYC and with several GPUs its writes wait for each other",
        fmt::format("setpci -s {} CAP_EXP+8.w=0010:0010 (at each boot){}", nic.address, in_firmware),
        {evidence(nic.relaxed_ordering, "DevCtl RlxdOrd-")});
  }
}

void geforce(const Host& host, Judgement& judgement) {
  if (host.nics.empty()) return;
  for (const Gpu& gpu : host.gpus) {
    if (!is_geforce(gpu)) continue;
    judgement.found(
        Confidence::kCertain, "GPU " + gpu.pci.address,
        "GeForce cards do not support GPUDirect RDMA: NCCL copies through host memory, and no setting changes "
        "that",
        "nothing to mend; NCCL_NET_GDR_LEVEL=LOC keeps logs quiet", {evidence(gpu.model, *gpu.model)});
  }
}

void dmabuf_refused(const Host& host, Judgement& judgement) {
  const GpuDriver& driver = host.gpu_driver;
  if (!wants_gpudirect(host) || !offers_dmabuf(host)) return;
  if (driver.legacy_peermem.value_or(false) ||
      (driver.nvidia_peermem.value_or(false) && driver.peer_memory_api.is(true)))
    return;
  std::vector<std::string> seen = refusing_dmabuf(host);
  if (seen.empty()) return;
  seen.push_back(evidence(driver.open_kernel_modules, "open kernel modules"));
  judgement.found(Confidence::kCertain, "GPUDirect",
                  "the NVIDIA driver offers GPU memory as DMA-BUF, and the RDMA driver takes none: NCCL copies through "
                  "host memory, and some versions fail instead",
                  "a newer RDMA driver (kernel 6.x, or a current OFED); until then NCCL_DMABUF_ENABLE=0", seen);
}

// clang-format off
constexpr std::array kGpuDirectRules = {
    Rule{"TW-GDR-001", Severity::kError, "access control redirects peer-to-peer traffic",
         "ACS request redirect, completion redirect or upstream forwarding on a bridge takes GPU-NIC traffic over the root "
         "complex. Linux itself sets them whenever an IOMMU driver is active, iommu=pt included, and BIOS menus that "
         "claim otherwise were wrong before: the configuration space is the truth, and root alone can read it.",
         acs_redirects},
    Rule{"TW-GDR-002", Severity::kWarning, "the IOMMU translates",
         "/sys/kernel/iommu_groups/*/type is the truth, not the command line: identity is pass-through, DMA and DMA-FQ are "
         "not.",
         iommu_translates},
    Rule{"TW-GDR-003", Severity::kError, "nothing lets a NIC register GPU memory",
         "There are two ways: a peer memory module (nvidia-peermem with an ib_core that takes it, which MLNX_OFED brings), "
         "or DMA-BUF (open kernel modules and kernel 5.12). Without either, NCCL copies through host memory and says so "
         "in one line of its log.",
         no_way_to_gpu_memory},
    Rule{"TW-GDR-004", Severity::kError, "nvidia-peermem is loaded and of no use",
         "lsmod is no proof. The module of the distribution's kernel finds no peer memory interface in the in-box ib_core.",
         peermem_without_api},
    Rule{"TW-GDR-005", Severity::kError, "this NCCL does not see nvidia-peermem",
         "nv_peer_mem, its forerunner, showed itself under /sys/kernel/mm/memory_peers. NCCL up to 2.22.3 looks there only.",
         nccl_overlooks_peermem},
    Rule{"TW-GDR-006", Severity::kWarning, "GPU and NIC are far from each other",
         "NCCL uses GPUDirect up to the distance PXB (one or more PCIe switches, no host bridge). Beyond, data goes through "
         "host memory.",
         gpu_far_from_nics},
    Rule{"TW-GDR-007", Severity::kWarning, "small BAR 1",
         "GPU memory is seen by other devices through BAR 1.",
         small_bar1},
    Rule{"TW-GDR-008", Severity::kInfo, "relaxed ordering is off",
         "Strict ordering is right and slow. Forcing it on for software that does not expect it (force_relax) corrupts data; "
         "NCCL asks for it itself where the device allows it.",
         no_relaxed_ordering},
    Rule{"TW-GDR-009", Severity::kInfo, "this GPU cannot do GPUDirect RDMA",
         "Only the data centre and workstation cards can.",
         geforce},
    Rule{"TW-GDR-010", Severity::kError, "the RDMA driver takes no DMA-BUF",
         "DMA-BUF needs both drivers. The doctor asks the RDMA driver as NCCL does, with a DMA-BUF that does not exist: EBADF "
         "means that it would take one, EOPNOTSUPP and EPROTONOSUPPORT that it never does.",
         dmabuf_refused},
    Rule{"TW-GDR-011", Severity::kWarning, "relaxed ordering is forced",
         "PCI_WR_ORDERING=force_relax(1) makes an mlx5 NIC mark every write as relaxed; per_mkey(0) only those of memory that a "
         "program registered so. The firmware's settings are read with --firmware only.",
         forced_relaxed_ordering},
};
// clang-format on

}  // namespace

RuleGroup gpudirect_rules() { return {"GPUDirect RDMA", kGpuDirectRules}; }

}  // namespace tensorwire::host
