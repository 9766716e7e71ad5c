// Everything that is known of one host. read_host() fills it from a tree; rules are functions of it and of nothing
// else.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/facts/gpu.hpp"
#include "host/facts/nccl_log.hpp"
#include "host/facts/netdev.hpp"
#include "host/facts/pci.hpp"
#include "host/facts/process.hpp"
#include "host/facts/rdma.hpp"

namespace tensorwire::host {

struct Host {
  Fact<std::string> kernel;  ///< "5.15.0-105-generic"
  Fact<bool> in_container;
  Fact<bool> virtual_machine;
  Fact<std::uint64_t> cma_bytes;           ///< memory set aside for contiguous allocation
  Fact<bool> rdma_nodes;                   ///< /dev/infiniband exists
  Fact<std::vector<std::string>> daemons;  ///< running ones that change QoS: "lldpad"
  Fact<bool> rdma_shared;  ///< all network namespaces see all RDMA devices (`rdma system`: netns shared)
  Fact<std::vector<RdmaDevice>> rdma;
  Fact<bool> has_libibverbs;
  Fact<std::vector<std::string>> verbs_devices;  ///< those that libibverbs shows to a program here
  Fact<std::vector<Netdev>> netdevs;
  std::vector<Subnet> subnets;      ///< of the routes, those without a gateway
  Fact<std::vector<Route>> routes;  ///< IPv4 and IPv6
  Fact<std::vector<Neighbour>> neighbours;
  std::vector<PciDevice> nics;  ///< those of the RDMA devices
  std::vector<Gpu> gpus;
  std::vector<PciBridge> bridges;  ///< all that are above one of these
  GpuDriver gpu_driver;
  std::vector<ServiceLimit> service_limits;  ///< of the services that start jobs, and of that of the process
  Process process;
  std::optional<NcclLog> nccl_log;

  [[nodiscard]] const Netdev* netdev(std::string_view name) const;
  [[nodiscard]] const PciDevice* nic(std::string_view address) const;
  [[nodiscard]] const PciBridge* bridge(std::string_view address) const;
};

/// The interface that belongs to a port: that of its GIDs. Empty where none is known.
[[nodiscard]] std::string netdev_of(const RdmaPort& port);

/// How far two PCI devices are from each other.
[[nodiscard]] Fact<Distance> distance(const PciDevice& one, const PciDevice& other);

}  // namespace tensorwire::host
