// A group of hosts that runs one collective again and again, as the ranks of a tensor-parallel model do: all-reduce,
// compute, all-reduce. Its plan, its runner and the protocol of its pairs are those of collective/, one queue pair for
// each pair of ranks. Memory is addresses; of the messages only the slot headers travel. Owned by its caller; lives as
// long as the fabric runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/builders.hpp"
#include "fabric/fabric.hpp"

namespace tensorwire::fabric {

struct GroupConfig {
  std::vector<HostId> hosts;  ///< by rank
  std::uint64_t bytes = 256 * 1024;
  collective::Algorithm algorithm = collective::Algorithm::kTwoShot;
  std::uint32_t operations = 160;
  Ps start = 0;
  Ps compute = 0;             ///< between the end of one operation and the begin of the next, on each rank
  std::uint32_t warm_up = 0;  ///< operations at first that are not measured
  ConnectionConfig connection = {};
  std::function<void()> on_finished = {};  ///< called when the last operation is over on all ranks
};

class CollectiveGroup {
 public:
  /// Brings up n - 1 queue pairs on each rank. @throws Error
  CollectiveGroup(Fabric& fabric, const GroupConfig& config);
  ~CollectiveGroup();
  CollectiveGroup(const CollectiveGroup&) = delete;
  CollectiveGroup& operator=(const CollectiveGroup&) = delete;

  [[nodiscard]] bool finished() const noexcept { return finished_; }
  /// Why it cannot go on; empty while it can.
  [[nodiscard]] const std::string& failure() const noexcept { return failure_; }
  [[nodiscard]] const GroupConfig& config() const noexcept { return config_; }
  /// Of each measured operation that is over on all ranks: from its begin to its end, on the rank where that was
  /// longest.
  [[nodiscard]] std::vector<Ps> latencies() const;

 private:
  class Rank;
  friend class Rank;

  /// Over all ranks.
  struct Operation {
    Ps longest = 0;
    std::uint32_t ended = 0;
  };

  void connect(Fabric& fabric);
  void on_operation(std::uint32_t number, Ps took);
  void fail(const std::string& why);

  Fabric& fabric_;
  GroupConfig config_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Operation> operations_;
  bool finished_ = false;
  std::string failure_;
};

}  // namespace tensorwire::fabric
