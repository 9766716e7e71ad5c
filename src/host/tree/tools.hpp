// The tools that a host is asked with, in one table: what is run, or which part of this program answers in the same
// format. A tool gets no shell and a second of time.
#pragma once

#include <string>
#include <string_view>

#include "host/tree/tree.hpp"

namespace tensorwire::host {

namespace tool {
inline constexpr std::string_view kDcbPfc = "dcb-pfc";
inline constexpr std::string_view kDcbApp = "dcb-app";
inline constexpr std::string_view kDcbEts = "dcb-ets";
inline constexpr std::string_view kDcbBuffer = "dcb-buffer";
inline constexpr std::string_view kDcbx = "dcbx";
inline constexpr std::string_view kMlnxQos = "mlnx_qos";
inline constexpr std::string_view kEthtoolStatistics = "ethtool-statistics";
inline constexpr std::string_view kEthtoolPause = "ethtool-pause";
inline constexpr std::string_view kNiccli = "niccli";
inline constexpr std::string_view kVerbsDevices = "ibv_devinfo";
inline constexpr std::string_view kDmabuf = "dmabuf";
inline constexpr std::string_view kNetconf = "ip-netconf";
inline constexpr std::string_view kRdmaSystem = "rdma-system";
inline constexpr std::string_view kCudaDmabuf = "cuda-dmabuf";
inline constexpr std::string_view kMlxconfig = "mlxconfig";  ///< asked only where seconds do not matter
inline constexpr std::string_view kNeighbours = "ip-neigh";
inline constexpr std::string_view kShowGids = "show_gids";
inline constexpr std::string_view kLspci = "lspci";
inline constexpr std::string_view kHypervisor = "hypervisor";         ///< the CPU says that there is one
inline constexpr std::string_view kDaemons = "daemons";               ///< which of those that change QoS run
inline constexpr std::string_view kKernelSymbols = "kernel-symbols";  ///< which of those that GPUDirect needs exist
}  // namespace tool

/// How a person asks the same: "dcb -j pfc show dev eth2".
[[nodiscard]] std::string tool_command(std::string_view tool, std::string_view subject);

/// Runs it. `name` is the name of the tool, a space, and its subject. A tool that is not installed: ENOENT; one that
/// takes too long: ETIMEDOUT; one that fails: EIO with the first line that it printed.
[[nodiscard]] Answer run_tool(const std::string& name);

}  // namespace tensorwire::host
