// The environment that NCCL and UCX need on this host, each line with its reason: a pure function of facts. A value
// that is a habit and not a fact of this host is left out, and that is said too.
#pragma once

#include <string>
#include <vector>

#include "host/facts/host.hpp"

namespace tensorwire::host {

struct EnvironmentLine {
  std::string name;
  std::string value;
  std::string reason;  ///< what was read, and where
};

struct NcclEnvironment {
  std::vector<EnvironmentLine> lines;
  std::vector<std::string> remarks;  ///< what is left out and why; what the environment sets otherwise now
};

/// @param dscp of the data; its traffic class is four times that
[[nodiscard]] NcclEnvironment nccl_environment(const Host& host, unsigned dscp);

/// `export NAME=VALUE  # reason`, a line each; remarks as comments.
[[nodiscard]] std::string shell_text(const NcclEnvironment& environment);
/// {"environment": {NAME: {"value", "reason"}}, "remarks": [...]}
[[nodiscard]] std::string json_text(const NcclEnvironment& environment);

/// What an NCCL log says really happened, with the numbers of its lines: the network, and each channel between hosts
/// with or without GPUDirect.
[[nodiscard]] std::string what_happened(const NcclLog& log);
/// {"log", "version", "networks", "no_rdma_device", "no_libibverbs", "gdr_refused": [{"line", "text"}], "channels":
/// [{"line", "channel", "from", "to", "direction", "network", "gdrdma"}]}
[[nodiscard]] std::string what_happened_json(const NcclLog& log);

}  // namespace tensorwire::host
