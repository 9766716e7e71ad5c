// RDMA devices: whether the job can open them, and whether it opens the ones it should.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/error.hpp"
#include "host/rules/groups.hpp"
#include "host/rules/queries.hpp"

namespace tensorwire::host {

namespace {

/// Devices of the kernel.
bool has_devices(const Host& host) {
  return host.rdma && std::ranges::any_of(*host.rdma, [](const RdmaDevice& one) { return !one.is_of_user_space(); });
}

void no_nodes(const Host& host, Judgement& judgement) {
  if (!has_devices(host) || !host.rdma_nodes.is(false)) return;
  const bool inside = host.in_container.value_or(false);
  judgement.found(
      Confidence::kCertain, "/dev/infiniband",
      inside ? "the container sees the RDMA devices in /sys, but was given none of their nodes: libibverbs finds "
               "no device, and NCCL falls back to sockets"
             : "the kernel has RDMA devices and no nodes for them: ib_uverbs is not loaded",
      inside ? "docker run --device=/dev/infiniband --cap-add=IPC_LOCK --ulimit memlock=-1; in Kubernetes ask "
               "for the device plugin's RDMA resource"
             : "modprobe ib_uverbs rdma_ucm",
      {evidence(host.rdma_nodes, "does not exist"), evidence(host.rdma, fmt::format("{} devices", host.rdma->size()))});
}

void node_refused(const Host& host, Judgement& judgement) {
  if (!has_devices(host) || host.rdma_nodes.is(false)) return;
  for (const RdmaDevice& device : *host.rdma) {
    if (!device.node_error || *device.node_error == 0) continue;
    judgement.found(
        Confidence::kCertain, device.name,
        "this process may not open the device. libibverbs reports that as \"no such file\", NCCL on this host "
        "then counts fewer devices than on others",
        host.in_container.value_or(false)
            ? fmt::format(
                  "docker run --device={} --cap-add=IPC_LOCK; in Kubernetes ask for the device plugin's RDMA resource",
                  device.node_error.where())
            : fmt::format("chmod 0666 {}, as rdma-core's udev rules have it", device.node_error.where()),
        {evidence(device.node_error, errno_text(*device.node_error))});
  }
}

struct ProviderAbi {
  NicFamily family;
  unsigned lowest, highest;
};

/// What the providers of rdma-core speak.
constexpr std::array kAbis = {ProviderAbi{NicFamily::kMlx5, 1, 1}, ProviderAbi{NicFamily::kBroadcom, 1, 1},
                              ProviderAbi{NicFamily::kIntel, 4, 5}, ProviderAbi{NicFamily::kRxe, 1, 2},
                              ProviderAbi{NicFamily::kMlx4, 3, 4}};

void foreign_abi(const Host& host, Judgement& judgement) {
  for (const RdmaDevice& device : host.rdma.value_or({})) {
    const auto row = std::ranges::find(kAbis, device.family, &ProviderAbi::family);
    if (row == kAbis.end() || !device.verbs_abi) continue;
    if (*device.verbs_abi >= row->lowest && *device.verbs_abi <= row->highest) continue;
    judgement.found(
        Confidence::kLikely, device.name,
        fmt::format("the driver speaks version {} of its interface to libibverbs, rdma-core's provider {} to {}: "
                    "an out-of-tree driver. With the distribution's rdma-core, as in most container images, "
                    "libibverbs finds no device",
                    *device.verbs_abi, row->lowest, row->highest),
        "put the vendor's provider library of this driver's version into the image",
        {evidence(device.verbs_abi, std::to_string(*device.verbs_abi))});
  }
}

void port_not_active(const Host& host, Judgement& judgement) {
  const HcaFilter filter{host.process.setting("NCCL_IB_HCA")};
  const auto ports = all_ports(host);
  const bool others = std::ranges::any_of(ports, [](const PortView& view) { return view.port->is_active(); });
  for (const PortView& view : ports) {
    if (!view.port->state || view.port->is_active() || !filter.fits(view.device->name, view.port->number)) continue;
    // A second port that nobody cabled is no fault unless somebody asks for it by name.
    if (others && (!filter.is_set() || filter.excludes())) continue;
    judgement.found(
        Confidence::kCertain, view.device->name,
        fmt::format("port {} is {}{}", view.port->number, *view.port->state,
                    others ? ", and NCCL_IB_HCA names it" : ", and so are all others"),
        fmt::format("ip link set {} up; look at cable and switch port",
                    view.netdev != nullptr ? view.netdev->name : "IFACE"),
        {evidence(view.port->state, *view.port->state),
         view.port->phys_state ? evidence(view.port->phys_state, *view.port->phys_state) : "physical state unknown"});
  }
}

void mixed_fabrics(const Host& host, Judgement& judgement) {
  const HcaFilter filter{host.process.setting("NCCL_IB_HCA")};
  std::vector<std::string> seen;
  bool ethernet = false;
  bool infiniband = false;
  for (const PortView& view : all_ports(host)) {
    if (!view.port->is_active() || !view.port->link_layer || !filter.fits(view.device->name, view.port->number))
      continue;
    const bool is_infiniband = *view.port->link_layer == LinkLayer::kInfiniband;
    (is_infiniband ? infiniband : ethernet) = true;
    seen.push_back(evidence(view.port->link_layer, is_infiniband ? "InfiniBand" : "Ethernet"));
  }
  if (!ethernet || !infiniband) return;
  judgement.found(
      Confidence::kCertain, "NCCL_IB_HCA",
      "active InfiniBand and Ethernet ports are used together: a rank that pairs one with the other fails in "
      "ibv_modify_qp (EINVAL)",
      "name the devices of one fabric in NCCL_IB_HCA (exactly: =mlx5_0,mlx5_1), or exclude the others (^mlx5_2)", seen);
}

void filter_fits_nothing(const Host& host, Judgement& judgement) {
  const Setting* setting = host.process.setting("NCCL_IB_HCA");
  const HcaFilter filter{setting};
  if (!filter.is_set() || !has_devices(host)) return;
  std::string names;
  for (const PortView& view : all_ports(host)) {
    if (filter.fits(view.device->name, view.port->number)) return;
    names += (names.empty() ? "" : ", ") + view.device->name;
  }
  judgement.found(Confidence::kCertain, "NCCL_IB_HCA",
                  "the list lets none of this host's devices through: NCCL falls back to sockets or fails",
                  "name devices that exist here: " + names,
                  {shown("NCCL_IB_HCA", *setting), evidence(host.rdma, names)});
}

void prefix_fits_more(const Host& host, Judgement& judgement) {
  const Setting* setting = host.process.setting("NCCL_IB_HCA");
  const HcaFilter filter{setting};
  if (!filter.is_set() || filter.is_exact()) return;
  for (const std::string& name : filter.names()) {
    std::vector<std::string> fits;
    bool itself = false;
    for (const RdmaDevice& device : host.rdma.value_or({})) {
      if (device.name == name) itself = true;
      if (device.name.starts_with(name) && device.name != name) fits.push_back(device.name);
    }
    if (!itself || fits.empty()) continue;
    judgement.found(
        Confidence::kLikely, "NCCL_IB_HCA",
        fmt::format("\"{}\" is a device and the begin of other names: {} fit as well", name, fmt::join(fits, ", ")),
        fmt::format("NCCL_IB_HCA={}={}", filter.excludes() ? "^" : "", fmt::join(filter.names(), ",")),
        {shown("NCCL_IB_HCA", *setting)});
  }
}

/// Two PCIe links, and not the functions of one.
bool on_different_links(const RdmaDevice& one, const RdmaDevice& other) {
  const auto slot = [](const std::string& address) { return address.substr(0, address.rfind('.')); };
  return one.pci_address && other.pci_address && slot(*one.pci_address) != slot(*other.pci_address);
}

void half_of_a_card(const Host& host, Judgement& judgement) {
  const Setting* setting = host.process.setting("NCCL_IB_HCA");
  const HcaFilter filter{setting};
  if (!filter.is_set()) return;
  for (const PortView& used : roce_ports(host)) {
    for (const PortView& other : all_ports(host)) {
      const bool same_card = used.device->system_guid && other.device->system_guid && used.device != other.device &&
                             *used.device->system_guid == *other.device->system_guid &&
                             on_different_links(*used.device, *other.device);
      if (!same_card || !other.port->is_active() || filter.fits(other.device->name, other.port->number)) continue;
      judgement.found(
          Confidence::kPossible, used.device->name,
          fmt::format("{} is another function of the same card, with an active port, and is left out: where one "
                      "socket's card is two PCIe functions, each has half of the lanes",
                      other.device->name),
          fmt::format("NCCL_IB_HCA=={},{}", used.device->name, other.device->name),
          {shown("NCCL_IB_HCA", *setting),
           evidence(used.device->system_guid, "equal to that of " + other.device->name)});
    }
  }
}

void no_device(const Host& host, Judgement& judgement) {
  if (!host.rdma || !host.rdma->empty()) return;
  judgement.found(
      Confidence::kCertain, "RDMA",
      "the kernel has no RDMA device: NCCL uses sockets here. Tensorwire's own user-space HCA works without one",
      "load the NIC's RDMA driver (mlx5_ib, bnxt_re, irdma) if this host has such a NIC; `tensorwire soft` if not",
      {evidence(host.rdma, "no device")});
}

void virtual_function(const Host& host, Judgement& judgement) {
  for (const PortView& view : roce_ports(host)) {
    if (view.netdev == nullptr || !view.netdev->is_virtual_function) continue;
    judgement.found(
        Confidence::kCertain, view.netdev->name,
        "a virtual function: PFC, trust and ECN are settings of its physical port, and can be neither seen nor "
        "changed from here",
        "run the doctor on the host too", {"/sys/class/net/" + view.netdev->name + "/device/physfn: exists"});
  }
}

void hidden_from_programs(const Host& host, Judgement& judgement) {
  // Under `tensorwire soft` programs see the user-space HCA on purpose.
  const bool soft = std::ranges::any_of(host.rdma.value_or({}), &RdmaDevice::is_of_user_space);
  if (!has_devices(host) || !host.verbs_devices || soft || host.rdma_nodes.is(false)) return;
  for (const RdmaDevice& device : *host.rdma) {
    if (device.node_error.value_or(0) != 0 ||
        std::ranges::find(*host.verbs_devices, device.name) != host.verbs_devices->end())
      continue;
    judgement.found(
        Confidence::kLikely, device.name,
        "the kernel has this device, and libibverbs does not show it to programs: its provider library is missing or "
        "does not fit the driver",
        "install ibverbs-providers, or the provider of the vendor's driver, into this host or image",
        {evidence(host.rdma, device.name),
         evidence(host.verbs_devices, host.verbs_devices->empty()
                                          ? "no device"
                                          : fmt::format("{}", fmt::join(*host.verbs_devices, ", ")))});
  }
}

void no_libibverbs(const Host& host, Judgement& judgement) {
  if (!has_devices(host) || !host.has_libibverbs.is(false)) return;
  judgement.found(
      Confidence::kLikely, "libibverbs",
      "there are RDMA devices, and no libibverbs.so.1 that a program could find: NCCL falls back to sockets",
      "install libibverbs1 and ibverbs-providers into this host or image",
      {evidence(host.has_libibverbs, "libibverbs.so.1 cannot be loaded"),
       evidence(host.rdma, fmt::format("{} devices", host.rdma->size()))});
}

// clang-format off
constexpr std::array kDeviceRules = {
    Rule{"TW-DEV-001", Severity::kError, "no device nodes",
         "Programs reach RDMA devices through /dev/infiniband. Containers get it only when asked for.", no_nodes},
    Rule{"TW-DEV-002", Severity::kError, "a device cannot be opened",
         "A device cgroup or permissions forbid it. With NCCL_IGNORE_NET_MISMATCH=1 the difference in device counts becomes a "
         "hang without a line.",
         node_refused},
    Rule{"TW-DEV-003", Severity::kError, "driver and provider library do not fit together",
         "Each driver has a version of its own interface, which the provider library in user space must know. Vendors' "
         "drivers come with their own library.",
         foreign_abi},
    Rule{"TW-DEV-004", Severity::kError, "a port that the job needs is not active",
         "Only an ACTIVE port carries traffic.", port_not_active},
    Rule{"TW-DEV-005", Severity::kError, "InfiniBand and Ethernet ports mixed",
         "NCCL pairs devices of different hosts by their place in the list. The link layer of a port says which fabric it "
         "belongs to; the LID does not (irdma reports one on Ethernet).",
         mixed_fabrics},
    Rule{"TW-DEV-006", Severity::kError, "NCCL_IB_HCA names no device of this host",
         "Device names differ from host to host when udev renames them.", filter_fits_nothing},
    Rule{"TW-DEV-007", Severity::kWarning, "NCCL_IB_HCA fits more devices than it names",
         "The names are prefixes: mlx5_1 lets mlx5_10 and mlx5_11 through. A '=' before the list makes them exact.",
         prefix_fits_more},
    Rule{"TW-DEV-008", Severity::kWarning, "half of a card is left out",
         "Some cards, those of DGX Spark among them, are two PCIe functions with half of the lanes each. With one device the "
         "rate is half: 98 against 161 Gb/s in a public report.",
         half_of_a_card},
    Rule{"TW-DEV-009", Severity::kInfo, "no RDMA device", "Nothing here is wrong, but nothing here is fast either.", no_device},
    Rule{"TW-DEV-010", Severity::kInfo, "a virtual function",
         "In a virtual machine or pod the physical port's settings are hidden.", virtual_function},
    Rule{"TW-DEV-011", Severity::kError, "a device that programs do not see",
         "`rdma link` and /sys show what the kernel has. Programs see what libibverbs makes of it, which needs a node and a "
         "provider library for the device.",
         hidden_from_programs},
    Rule{"TW-DEV-012", Severity::kError, "no libibverbs",
         "NCCL and UCX load libibverbs when they start, and go on over TCP without it. Images often lack it.", no_libibverbs},
};
// clang-format on

}  // namespace

RuleGroup device_rules() { return {"RDMA devices", kDeviceRules}; }

}  // namespace tensorwire::host
