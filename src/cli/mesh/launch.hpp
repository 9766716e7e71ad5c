// How the ranks of a measurement over hosts come to be: a launcher's, plain flags, or --hosts, where this one becomes
// rank 0 and says what to start elsewhere.
#pragma once

#include <string>
#include <vector>

#include "bootstrap/options.hpp"
#include "cli/command.hpp"

namespace tensorwire::cli {

struct HostsFlags {
  std::vector<std::string> hosts;  ///< the first is this one
  int ranks = 0;                   ///< of this machine, to try it out
  std::string wait;                ///< how long to wait for the others; empty: the bootstrap's default
  bootstrap::GroupFlags group;

  void add_to(Command& command);
};

/// Where there is neither a launcher nor a rank, and --ranks is given: starts them here and sets `status`.
[[nodiscard]] bool started_local_ranks(const HostsFlags& flags, int& status);

/// Who this rank is. With --hosts it prints the lines to start elsewhere, on standard error. @throws Error
[[nodiscard]] bootstrap::GroupOptions ranks_of(const HostsFlags& flags, const std::string& command);

/// The lines for ranks 1 and on: "gpu02$ tensorwire doctor mesh --rank 1 ...". `words` are those of this command.
[[nodiscard]] std::vector<std::string> lines_to_start(const std::vector<std::string>& words,
                                                      const std::vector<std::string>& hosts, std::uint16_t port);

}  // namespace tensorwire::cli
