// The process that is looked at: its environment, limits and libraries.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "host/fact.hpp"

namespace tensorwire::host {

/// A setting of a communication library, and who sets it.
struct Setting {
  std::string value;
  std::string where;  ///< "environment", "/etc/nccl.conf", "~/.nccl.conf", "/etc/ucx/ucx.conf"
};

/// What a systemd unit's files say of the memory that its processes may lock; the last that says something counts.
struct ServiceLimit {
  std::string service;  ///< "slurmd.service"
  std::uint64_t bytes = 0;
  std::string text;   ///< "LimitMEMLOCK=64K"
  std::string where;  ///< the file
};

struct Process {
  Fact<std::map<std::string, Setting, std::less<>>>
      settings;                              ///< NCCL_*, UCX_*, ...; the environment goes before files
  Fact<std::uint64_t> memlock_bytes;         ///< UINT64_MAX: unlimited
  std::string service;                       ///< that started it: "slurmd.service"; empty: none
  Fact<std::vector<std::string>> libraries;  ///< mapped files of NCCL, libibverbs and providers

  /// The setting; null where nobody sets it.
  [[nodiscard]] const Setting* setting(std::string_view name) const;
  /// Whether this looks like the environment of a job and not that of a shell: something of NCCL or UCX is set.
  [[nodiscard]] bool is_job() const;
};

}  // namespace tensorwire::host
