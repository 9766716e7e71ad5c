// Reads a tree into facts, a subject a file. Nothing here judges, and nothing throws: what cannot be read is unknown.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "host/fact.hpp"
#include "host/facts/host.hpp"
#include "host/tree/tree.hpp"

namespace tensorwire::host {

/// All facts. A host without RDMA, GPU or container is a host with fewer facts, not an error.
[[nodiscard]] Host read_host(Tree& tree);

[[nodiscard]] Fact<std::vector<RdmaDevice>> read_rdma_devices(Tree& tree);
/// Those with an RDMA device in detail (`rdma` says which they are).
[[nodiscard]] Fact<std::vector<Netdev>> read_netdevs(Tree& tree, const std::vector<RdmaDevice>& rdma);
[[nodiscard]] std::vector<Subnet> read_subnets(Tree& tree);
[[nodiscard]] Qos read_qos(Tree& tree, const std::string& netdev);
[[nodiscard]] Process read_process(Tree& tree);
/// @throws Error when the file cannot be read
[[nodiscard]] NcclLog read_nccl_log(const std::string& path);
/// Of all variables of a process these are read and recorded, and no others.
[[nodiscard]] bool is_fabric_variable(std::string_view name);
/// Likewise of all mapped files.
[[nodiscard]] bool is_rdma_library(std::string_view file);
[[nodiscard]] GpuDriver read_gpu_driver(Tree& tree);
/// GPUs, the PCI devices of NICs and GPUs, and the bridges above them.
void read_pci(Tree& tree, Host& host);

}  // namespace tensorwire::host
