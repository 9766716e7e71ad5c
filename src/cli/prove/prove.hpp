// `tensorwire doctor watch --prove`: in which priority the library's own packets ride, proven at both ends.
#pragma once

#include <cstdint>
#include <string>

#include "base/time.hpp"
#include "bootstrap/options.hpp"
#include "cli/command.hpp"

namespace tensorwire::cli {

struct ProveFlags {
  bootstrap::GroupFlags group;
  std::string device;
  int gid_index = -1;
  std::uint32_t dscp = 26;
  std::string burst = "64MiB";
  std::string switch_wait = "60s";

  void add_to(Command& command);
};

/// @param idle  how long the idle rate is measured
/// @param switch_file  empty: none
/// @return the exit status, at every rank. @throws Error
int prove(const ProveFlags& flags, Ps idle, const std::string& switch_file, bool as_json);

}  // namespace tensorwire::cli
