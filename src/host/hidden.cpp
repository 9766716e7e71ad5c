#include "host/hidden.hpp"

#include <fmt/format.h>

#include "host/rules/queries.hpp"

namespace tensorwire::host {

namespace {

std::string ports_without_interface(const Host& host) {
  std::vector<std::string> names;
  for (const PortView& view : all_ports(host)) {
    if (view.port->is_roce() && view.netdev == nullptr && !view.device->is_of_user_space())
      names.push_back(fmt::format("{}:{}", view.device->name, view.port->number));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string devices_without_node(const Host& host) {
  std::vector<std::string> names;
  for (const RdmaDevice& device : host.rdma.value_or({})) {
    if (device.node_error.value_or(0) != 0) names.push_back(device.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

bool any_bridge_unread(const Host& host) {
  for (const PciBridge& bridge : host.bridges) {
    if (!bridge.acs) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> hidden_facts(const Host& host) {
  if (!host.in_container.value_or(false)) return {};
  std::vector<std::string> hidden{
      "processes of the host: whether lldpad runs, and the limits and libraries of jobs outside"};
  const std::string ports = ports_without_interface(host);
  if (!ports.empty())
    hidden.push_back(
        fmt::format("the interface of {} (another network namespace): its MTU, QoS, pauses and routes", ports));
  if (host.rdma && !host.rdma->empty() && !host.rdma_shared.is(false)) {
    hidden.push_back(host.rdma_shared
                         ? "which RDMA devices are this container's: /sys/class/infiniband shows those of the "
                           "whole host (rdma system: netns shared)"
                         : "which RDMA devices are this container's: whether namespaces share them (rdma system) "
                           "cannot be read");
  }
  const std::string nodes = devices_without_node(host);
  if (!nodes.empty()) hidden.push_back(fmt::format("the device node of {}", nodes));
  if (any_bridge_unread(host)) hidden.emplace_back("access control of PCIe bridges (it needs root on the host)");
  if (!host.gpus.empty() && !host.gpu_driver.peer_memory_api)
    hidden.emplace_back("the kernel's symbols: whether ib_core takes peer memory");
  bool parameters = false;
  for (const RdmaDevice& device : host.rdma.value_or({}))
    parameters = parameters || (device.family == NicFamily::kMlx5 && !device.dcqcn);
  if (parameters) hidden.emplace_back("debugfs: the parameters of congestion control");
  return hidden;
}

}  // namespace tensorwire::host
