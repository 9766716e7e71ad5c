// Reads a tree into facts, a subject a file. Nothing here judges, and nothing throws: what cannot be read is unknown.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/fact.hpp"
#include "host/facts/host.hpp"
#include "host/tree/tree.hpp"

namespace tensorwire::host {

/// All facts. A host without RDMA, GPU or container is a host with fewer facts, not an error.
[[nodiscard]] Host read_host(Tree& tree);

[[nodiscard]] Fact<std::vector<RdmaDevice>> read_rdma_devices(Tree& tree);
/// What libibverbs and show_gids print, merged with the devices of the kernel.
void add_printed_devices(Tree& tree, Host& host);
/// Those with an RDMA device in detail (`rdma` says which they are).
[[nodiscard]] Fact<std::vector<Netdev>> read_netdevs(Tree& tree, const std::vector<RdmaDevice>& rdma);
[[nodiscard]] Fact<std::vector<Route>> read_routes(Tree& tree);
[[nodiscard]] Fact<std::vector<Neighbour>> read_neighbours(Tree& tree);
/// `device`: the RDMA device that rides on it, where that matters.
[[nodiscard]] Qos read_qos(Tree& tree, const std::string& netdev, const RdmaDevice* device = nullptr);
[[nodiscard]] Process read_process(Tree& tree);
/// Of services that start jobs, and of `service`, where their files say something.
[[nodiscard]] std::vector<ServiceLimit> read_service_limits(Tree& tree, const std::string& service);
/// @throws Error when the file cannot be read
[[nodiscard]] NcclLog read_nccl_log(const std::string& path);
/// Of all variables of a process these are read and recorded, and no others.
[[nodiscard]] bool is_fabric_variable(std::string_view name);
/// Likewise of all mapped files.
[[nodiscard]] bool is_rdma_library(std::string_view file);
/// `asks_cuda`: where nothing hangs on what CUDA says, the time that it takes is saved.
[[nodiscard]] GpuDriver read_gpu_driver(Tree& tree, bool asks_cuda);
/// GPUs, the PCI devices of NICs and GPUs, and the bridges above them.
void read_pci(Tree& tree, Host& host);
/// What `lspci -vvv` printed, where sysfs did not say it.
void fill_from_lspci(Tree& tree, Host& host);

}  // namespace tensorwire::host
