#include "host/rules/rails.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "host/rules/queries.hpp"

namespace tensorwire::host {

namespace {

/// The port that is nearer than all others.
const PortView* nearest_port(const Host& host, const Gpu& gpu, const std::vector<PortView>& ports) {
  const PortView* nearest = nullptr;
  auto least = Distance::kSys;
  bool alone = true;
  for (const PortView& view : ports) {
    const PciDevice* nic = view.device->pci_address ? host.nic(*view.device->pci_address) : nullptr;
    if (nic == nullptr) continue;
    const Distance far = distance(gpu.pci, *nic).value_or(Distance::kSys);
    if (nearest != nullptr && far > least) continue;
    alone = nearest == nullptr || far < least;
    nearest = &view;
    least = far;
  }
  return alone && least < Distance::kSys ? nearest : nullptr;
}

std::optional<Subnet> ipv4_subnet_of(const Host& host, const std::string& netdev) {
  for (const Subnet& subnet : host.subnets) {
    if (subnet.netdev == netdev && subnet.network.is_ipv4()) return subnet;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Rail> rails_by_gpu(const Host& host) {
  std::vector<Rail> rails;
  const auto ports = qos_ports(host);
  for (const Gpu& gpu : host.gpus) {
    const PortView* port = nearest_port(host, gpu, ports);
    const auto subnet = port != nullptr ? ipv4_subnet_of(host, port->netdev->name) : std::nullopt;
    if (!subnet) return {};
    rails.push_back({gpu.pci.address, port->device->name, *subnet});
  }
  std::ranges::sort(rails, {}, &Rail::gpu);
  return rails;
}

std::vector<unsigned> order_of(const std::vector<Rail>& rails) {
  std::set<std::array<std::uint8_t, 16>> networks;
  for (const Rail& rail : rails) networks.insert(rail.subnet.network.bytes);
  std::vector<unsigned> order;
  for (const Rail& rail : rails)
    order.push_back(static_cast<unsigned>(std::distance(networks.begin(), networks.find(rail.subnet.network.bytes))));
  return order;
}

}  // namespace tensorwire::host
