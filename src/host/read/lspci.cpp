// PCI devices from the output of `lspci -vvv`: where sysfs was not copied, or only root could read it.
#include "host/parse/lspci.hpp"

#include <algorithm>
#include <array>

#include "host/read/parts.hpp"
#include "host/read/read.hpp"

namespace tensorwire::host {

namespace {

const std::string kLspciOutput{"lspci -vvv"};

template <class T>
Fact<T> fact_of_print(const std::optional<T>& value, const LspciDevice& device) {
  if (value) return {*value, kLspciOutput + " of " + device.address};
  return Fact<T>::unknown(device.access_denied ? "lspci shows it to root only" : "lspci does not print it",
                          kLspciOutput + " of " + device.address);
}

PciDevice device_of(const LspciDevice& printed_device, const std::vector<LspciDevice>& all) {
  PciDevice device;
  device.address = printed_device.address;
  device.path = {path_of(printed_device, all), kLspciOutput};
  device.numa_node = fact_of_print(printed_device.numa_node, printed_device);
  device.link = fact_of_print(printed_device.link, printed_device);
  device.best_link = fact_of_print(printed_device.best_link, printed_device);
  device.relaxed_ordering = fact_of_print(printed_device.relaxed_ordering, printed_device);
  device.bar1_bytes = fact_of_print(printed_device.bar1_bytes, printed_device);
  return device;
}

bool is_gpu(const LspciDevice& device) {
  return device.name.starts_with("NVIDIA") &&
         (device.kind == "3D controller" || device.kind == "VGA compatible controller");
}

bool is_rdma_nic(const LspciDevice& device) {
  constexpr std::array kRdmaDrivers = {"mlx5_core", "mlx4_core", "bnxt_en", "ice", "i40e", "idpf", "qede", "ionic"};
  return std::ranges::find(kRdmaDrivers, device.driver) != kRdmaDrivers.end();
}

void add_printed_bridges(const PciDevice& device, const std::vector<LspciDevice>& all,
                         std::vector<PciBridge>& bridges) {
  for (const std::string& address : device.path->bridges) {
    if (std::ranges::find(bridges, address, &PciBridge::address) != bridges.end()) continue;
    const auto bridge = std::ranges::find(all, address, &LspciDevice::address);
    bridges.push_back({address, fact_of_print(bridge->acs, *bridge)});
  }
}

}  // namespace

void fill_from_lspci(Tree& tree, Host& host) {
  const Answer answer = tree.tool(tool::kLspci, "");
  if (!answer.ok()) return;
  const auto all = parse_lspci(answer.text);
  for (PciBridge& bridge : host.bridges) {
    const auto found = std::ranges::find(all, bridge.address, &LspciDevice::address);
    if (!bridge.acs && found != all.end()) bridge.acs = fact_of_print(found->acs, *found);
  }
  if (!host.gpus.empty() || !host.nics.empty()) return;
  for (const LspciDevice& device : all) {
    if (is_gpu(device)) host.gpus.push_back({device_of(device, all), {device.name, kLspciOutput}});
    if (is_rdma_nic(device)) host.nics.push_back(device_of(device, all));
  }
  for (const PciDevice& nic : host.nics) add_printed_bridges(nic, all, host.bridges);
  for (const Gpu& gpu : host.gpus) add_printed_bridges(gpu.pci, all, host.bridges);
}

}  // namespace tensorwire::host
