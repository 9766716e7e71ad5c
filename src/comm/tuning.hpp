// What `tensorwire tune` measured, kept for each topology in one TOML file: the fabric's parameters for the cost model,
// and the thresholds that a communicator then takes. The file is TENSORWIRE_TUNE, else tensorwire/tune.toml under
// $XDG_CONFIG_HOME or ~/.config; it may be edited by hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collective/cost.hpp"

namespace tensorwire::comm {

/// Who talks to whom, and how.
struct Topology {
  std::vector<std::string> hosts;  ///< by rank
  std::vector<std::string> paths;  ///< how bytes travel to the peers, as Link::describe says it; any order

  /// "4-ranks-same-host-link-1a2b3c4d": ranks, kinds of path, and a hash of the set of hosts.
  [[nodiscard]] std::string key() const;
};

struct Tuning {
  std::uint32_t ranks = 0;
  collective::FabricCost cost;
  collective::Thresholds thresholds;  ///< what the file does not say is as by default
  double mean_error = 0;              ///< of the prediction, over sizes that it was not fitted to; 0.1 is 10%
};

/// Empty: there is none (TENSORWIRE_TUNE=off, or no home).
[[nodiscard]] std::string tune_file();

/// Nothing where there is no such file or it does not know the topology. @throws Error: it cannot be read, with the
/// line.
[[nodiscard]] std::optional<Tuning> load_tuning(const std::string& file, std::string_view key);
/// The first entry for so many ranks, with its key.
[[nodiscard]] std::optional<std::pair<std::string, Tuning>> find_tuning(const std::string& file, std::uint32_t ranks);
/// Puts or replaces one entry; makes the folder. The file is replaced as a whole. @throws Error.
void save_tuning(const std::string& file, std::string_view key, const Tuning& tuning);

}  // namespace tensorwire::comm
