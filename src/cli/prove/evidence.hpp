// What each end of a proof tells the others about itself: which interface its packets take, and what that counted while
// nothing was sent and while each burst was.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "host/class_proof.hpp"

namespace tensorwire::cli {

struct Evidence {
  std::string name;  ///< "gpu01 eth2"
  std::string path;  ///< "mlx5_0 port 1, GID 3 ..."
  unsigned path_mtu = 0;
  bool ipv6 = false;
  std::optional<host::PrioritySet> pfc;
  std::optional<host::Trust> trust;
  host::CounterWindow idle;
  std::vector<host::CounterWindow> bursts;  ///< by the rank that sent

  [[nodiscard]] host::BurstEnd end_of(std::size_t burst) const { return {name, idle, bursts[burst], pfc, trust}; }
};

[[nodiscard]] std::string to_text(const Evidence& evidence);
/// @throws Error where it is no such text
[[nodiscard]] Evidence evidence_in(std::span<const std::byte> text);

}  // namespace tensorwire::cli
