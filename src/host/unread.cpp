#include "host/unread.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "host/rules/queries.hpp"

namespace tensorwire::host {

namespace {

/// There is nothing to read, as opposed to: it could not be read.
bool is_absent(const std::string& why) {
  constexpr std::array<std::string_view, 8> kAbsences = {"ENOENT", "ENOTDIR", "EOPNOTSUPP",   "ENODATA",
                                                         "ENOSYS", "ENODEV",  "was not read", "not in this recording"};
  return std::ranges::any_of(kAbsences, [&why](std::string_view one) { return why.find(one) != std::string::npos; });
}

class Unread {
 public:
  explicit Unread(Diagnosis& diagnosis) : diagnosis_(diagnosis) {}

  /// `id`: the first rule that needs it.
  template <class T>
  void check(std::string_view id, std::string what, const Fact<T>& fact) {
    if (fact || is_absent(fact.why())) return;
    diagnosis_.unknown.push_back({std::string{id}, std::move(what), fact.where() + ": " + fact.why()});
  }
  void add(std::string_view id, std::string what, std::string why) {
    diagnosis_.unknown.push_back({std::string{id}, std::move(what), std::move(why)});
  }

 private:
  Diagnosis& diagnosis_;
};

void check_port(const PortView& view, Unread& unread) {
  const std::string name = view.device->name + ":" + std::to_string(view.port->number);
  unread.check("TW-DEV-004", "state of " + name, view.port->state);
  unread.check("TW-DEV-005", "link layer of " + name, view.port->link_layer);
  unread.check("TW-ECN-003", "counters of " + name, view.port->counters);
  unread.check("TW-QOS-009", "forced traffic class of " + name, view.port->forced_traffic_class);
  for (const Gid& gid : view.port->gids.value_or({})) {
    // EINVAL is how the kernel says that an address is of another network namespace.
    if (gid.version.why().find("EINVAL") == std::string::npos)
      unread.check("TW-GID-002", "version of GID " + std::to_string(gid.index) + " of " + name, gid.version);
  }
}

/// Whether an end of congestion control is on: by its setting, else by what it does. With neither it is not known.
void check_end(const std::string& id, const std::string& end, const PortView& view, const Fact<PrioritySet>& setting,
               std::optional<std::uint64_t> works, const char* name, bool judged, Unread& unread) {
  if (setting || !is_absent(setting.why())) {
    unread.check(id, end + " of " + view.netdev->name, setting);
    return;
  }
  if (works.value_or(0) > 0 || judged) return;
  const std::string counted = works ? std::string{name} + " is 0" : "nothing is counted that would tell";
  const auto& firmware = view.device->firmware_settings;
  const std::string asked = view.device->family != NicFamily::kMlx5 ? ""
                            : firmware                              ? ", nor has its firmware"
                                       : ", and its firmware's settings: " + firmware.why();
  unread.add(id, "whether the " + end + " of " + view.netdev->name + " is on",
             "this driver has no setting that shows it" + asked + "; " + counted);
}

void check_congestion_control(const PortView& view, Unread& unread) {
  const CongestionCounters counted = congestion_counters(*view.port);
  const Qos& qos = view.netdev->qos;
  check_end("TW-ECN-001", "notification point", view, qos.ecn_np, counted.sent, "the counter of CNPs sent",
            counted.marked.value_or(0) >= 100, unread);
  check_end("TW-ECN-002", "reaction point", view, qos.ecn_rp, counted.handled, "the counter of CNPs obeyed",
            counted.ignored.value_or(0) >= 100, unread);
}

void check_interface(const Netdev& netdev, Unread& unread) {
  const Qos& qos = netdev.qos;
  unread.check("TW-MTU-001", "MTU of " + netdev.name, netdev.mtu);
  unread.check("TW-PFC-003", "global pause of " + netdev.name, qos.pause);
  unread.check("TW-PFC-005", "driver's statistics of " + netdev.name, netdev.statistics);
  unread.check("TW-QOS-001", "trust of " + netdev.name, qos.trust);
  unread.check("TW-QOS-002", "priorities of DSCPs of " + netdev.name, qos.priority_of_dscp);
  unread.check("TW-QOS-007", "who controls QoS of " + netdev.name, qos.host_controls);
  unread.check("TW-NET-001", "ARP settings of " + netdev.name, netdev.arp_ignore);
}

void check_pci(const Host& host, Unread& unread) {
  for (const PciDevice& nic : host.nics) {
    unread.check("TW-LINK-001", "PCIe link of NIC " + nic.address, nic.link);
    unread.check("TW-LINK-001", "best PCIe link of NIC " + nic.address, nic.best_link);
    if (!host.gpus.empty()) unread.check("TW-GDR-008", "relaxed ordering of NIC " + nic.address, nic.relaxed_ordering);
  }
  for (const Gpu& gpu : host.gpus) {
    unread.check("TW-LINK-002", "PCIe link of GPU " + gpu.pci.address, gpu.pci.link);
    unread.check("TW-GDR-007", "BAR 1 of GPU " + gpu.pci.address, gpu.pci.bar1_bytes);
    unread.check("TW-GDR-009", "model of GPU " + gpu.pci.address, gpu.model);
  }
  if (host.gpus.empty()) return;
  unread.check("TW-GDR-003", "version of the NVIDIA driver", host.gpu_driver.version);
  if (!host.nics.empty()) unread.check("TW-GDR-010", "whether CUDA offers DMA-BUF", host.gpu_driver.cuda_dmabuf);
  unread.check("TW-GDR-004", "the kernel's peer memory interface", host.gpu_driver.peer_memory_api);
}

}  // namespace

void add_unread_facts(const Host& host, Diagnosis& diagnosis) {
  Unread unread{diagnosis};
  unread.check("TW-DEV-009", "RDMA devices", host.rdma);
  unread.check("TW-MTU-001", "network interfaces", host.netdevs);
  unread.check("TW-NCCL-001", "environment of the process", host.process.settings);
  if (!host.rdma || host.rdma->empty()) return;
  unread.check("TW-DEV-011", "devices that libibverbs shows", host.verbs_devices);
  unread.check("TW-QOS-006", "running daemons", host.daemons);
  unread.check("TW-NET-001", "routes", host.routes);
  unread.check("TW-NET-005", "neighbours", host.neighbours);
  unread.check("TW-PROC-002", "mapped files of the process", host.process.libraries);
  for (const RdmaDevice& device : *host.rdma) {
    unread.check("TW-DEV-003", "interface version of " + device.name, device.verbs_abi);
  }
  for (const PortView& view : all_ports(host)) check_port(view, unread);
  for (const PortView& view : qos_ports(host)) {
    check_interface(*view.netdev, unread);
    check_congestion_control(view, unread);
  }
  check_pci(host, unread);
}

}  // namespace tensorwire::host
