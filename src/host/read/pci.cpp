#include "host/parse/pci.hpp"

#include <algorithm>
#include <cerrno>

#include "host/read/parts.hpp"
#include "host/read/read.hpp"

namespace tensorwire::host {

namespace {

const std::string kDevices = "/sys/bus/pci/devices/";

Fact<PciLink> read_link(Tree& tree, const std::string& device, const std::string& which) {
  const auto speed = fact_in_file(tree, device + "/" + which + "_link_speed", [](std::string_view text) {
    return number_in<double>(text.substr(0, text.find(' ')));
  });
  const auto width = number_in_file<unsigned>(tree, device + "/" + which + "_link_width");
  if (!speed) return Fact<PciLink>::unknown(speed.why(), speed.where());
  if (!width) return Fact<PciLink>::unknown(width.why(), width.where());
  return {PciLink{*speed, *width}, speed.where()};
}

Fact<std::string> read_iommu_type(Tree& tree, const std::string& device) {
  const std::string link = device + "/iommu_group";
  if (exists(tree.target(link), link).is(false)) return {"none", link};
  const auto group = target_name(tree, link);
  return group ? line_in(tree, "/sys/kernel/iommu_groups/" + *group + "/type") : group;
}

PciDevice read_pci_device(Tree& tree, const std::string& address) {
  const std::string path = kDevices + address;
  PciDevice device;
  device.address = address;
  device.path = fact_of(tree.target(path), path, path_in);
  device.numa_node = number_in_file<int>(tree, path + "/numa_node");
  device.link = read_link(tree, path, "current");
  device.best_link = read_link(tree, path, "max");
  device.relaxed_ordering = fact_in_file(tree, path + "/config", relaxed_ordering_in);
  device.iommu_type = read_iommu_type(tree, path);
  device.bar1_bytes = fact_in_file(tree, path + "/resource", bar1_in);
  return device;
}

void add_bridges(Tree& tree, const PciDevice& device, std::vector<PciBridge>& bridges) {
  if (!device.path) return;
  for (const std::string& address : device.path->bridges) {
    if (std::ranges::find(bridges, address, &PciBridge::address) != bridges.end()) continue;
    const std::string config = kDevices + address + "/config";
    const Answer bytes = tree.text(config);
    auto acs = fact_of(bytes, config, acs_in);
    if (bytes.ok() && !acs) acs = Fact<Acs>::unknown("the kernel shows it to root only", config);
    bridges.push_back({address, std::move(acs)});
  }
}

bool is_nvidia_gpu(Tree& tree, const std::string& address) {
  return line_in(tree, kDevices + address + "/vendor").is("0x10de") &&
         line_in(tree, kDevices + address + "/class").value_or("").starts_with("0x03");
}

}  // namespace

void read_pci(Tree& tree, Host& host) {
  const auto addresses = names_in(tree, "/sys/bus/pci/devices");
  for (const std::string& address : addresses.value_or({})) {
    if (!is_nvidia_gpu(tree, address)) continue;
    const auto model =
        fact_in_file(tree, "/proc/driver/nvidia/gpus/" + address + "/information", [](std::string_view text) {
          const auto name = between(text, "Model:", "\n");
          return name ? std::optional{std::string{trimmed(*name)}} : std::nullopt;
        });
    host.gpus.push_back({read_pci_device(tree, address), model});
  }
  for (const RdmaDevice& rdma : host.rdma.value_or({})) {
    if (rdma.pci_address && host.nic(*rdma.pci_address) == nullptr)
      host.nics.push_back(read_pci_device(tree, *rdma.pci_address));
  }
  for (const PciDevice& nic : host.nics) add_bridges(tree, nic, host.bridges);
  for (const Gpu& gpu : host.gpus) add_bridges(tree, gpu.pci, host.bridges);
}

}  // namespace tensorwire::host
