#include "host/since.hpp"

#include <algorithm>

namespace tensorwire::host {

namespace {

void subtract(const Fact<Counters>& before, Fact<Counters>& after) {
  if (!after) return;
  if (!before) {
    after = Fact<Counters>::unknown(before.why(), before.where());
    return;
  }
  Counters moved;
  for (const auto& [name, value] : *after) {
    const auto was = counter(before, name);
    if (was && *was <= value) moved.emplace(name, value - *was);
  }
  after = {std::move(moved), after.where() + " (between two looks)"};
}

void subtract_ports(const RdmaDevice& before, RdmaDevice& after) {
  for (RdmaPort& port : after.ports) {
    const auto was = std::ranges::find(before.ports, port.number, &RdmaPort::number);
    if (was != before.ports.end()) subtract(was->counters, port.counters);
  }
}

}  // namespace

Host counted_since(const Host& before, Host after) {
  if (before.rdma && after.rdma) {
    std::vector<RdmaDevice> devices = *after.rdma;
    for (RdmaDevice& device : devices) {
      const auto was = std::ranges::find(*before.rdma, device.name, &RdmaDevice::name);
      if (was != before.rdma->end()) subtract_ports(*was, device);
    }
    after.rdma = {std::move(devices), after.rdma.where()};
  }
  if (after.netdevs) {
    std::vector<Netdev> netdevs = *after.netdevs;
    for (Netdev& netdev : netdevs) {
      if (const Netdev* was = before.netdev(netdev.name)) subtract(was->statistics, netdev.statistics);
    }
    after.netdevs = {std::move(netdevs), after.netdevs.where()};
  }
  return after;
}

}  // namespace tensorwire::host
