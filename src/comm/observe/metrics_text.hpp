// A communicator's numbers in the text format that Prometheus scrapes (version 0.0.4).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/observe/output_name.hpp"
#include "comm/statistics.hpp"

namespace tensorwire::comm {

struct MetricsSnapshot {
  std::vector<SizeStats> sizes;
  std::vector<PeerReport> peers;
  std::vector<DeviceCount> device;
  Ps running_since_ago = 0;      ///< age of the operation under way, 0: none
  std::optional<int> straggler;  ///< the peer that the operation under way was found to wait for
  bool failed = false;
};

[[nodiscard]] std::string metrics_text(const Identity& who, const MetricsSnapshot& snapshot);

}  // namespace tensorwire::comm
