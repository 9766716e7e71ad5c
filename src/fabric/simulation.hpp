// A scenario that runs: its fabric, its traffic, what was seen on the way, and the report at the end. Owns all of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fabric/collective_group.hpp"
#include "fabric/flow.hpp"
#include "fabric/report.hpp"
#include "fabric/scenario.hpp"

namespace tensorwire::fabric {

class Simulation {
 public:
  /// @throws Error
  explicit Simulation(const Scenario& scenario);

  /// Goes on by `span` of simulated time. False: it is over, because all that ends has ended, a rank failed, or the
  /// scenario's limit is reached.
  bool run(Ps span);
  [[nodiscard]] Ps now() const noexcept { return fabric_.now(); }
  /// Measured operations that have ended, of so many, in all groups.
  struct Progress {
    std::uint64_t done = 0, all = 0;
  };
  [[nodiscard]] Progress progress() const;
  [[nodiscard]] const std::vector<std::unique_ptr<Flow>>& flows() const noexcept { return flows_; }
  [[nodiscard]] Fabric& fabric() noexcept { return fabric_; }

  /// As of now; also when it is not over.
  [[nodiscard]] Report report() const;

 private:
  /// Looks at queues and pauses every so often.
  class Sampler final : public Actor {
   public:
    Sampler(Fabric& fabric, Ps every);
    void act(Ps now) override;
    std::vector<Sample> samples;

   private:
    Fabric& fabric_;
    Ps every_;
  };

  void add_allreduce(const AllReduceTraffic& traffic);
  void add_bulk(const BulkTraffic& traffic);
  [[nodiscard]] bool ended() const;
  void stop_if_ended();
  void add_traffic(Report& report) const;
  void add_ports(Report& report) const;
  void add_links(Report& report) const;
  [[nodiscard]] double utilisation(PortId port) const;
  /// The priority that was paused longest, and for what part of the time.
  [[nodiscard]] std::pair<std::uint8_t, double> longest_paused(PortId port) const;
  [[nodiscard]] UnevenWays most_uneven_ways() const;
  [[nodiscard]] ConnectionConfig connection(std::uint8_t dscp) const;

  Scenario scenario_;
  Fabric fabric_;
  std::vector<std::unique_ptr<CollectiveGroup>> groups_;
  std::vector<std::unique_ptr<Flow>> flows_;
  std::vector<std::unique_ptr<LinkFailure>> failures_;
  std::unique_ptr<Sampler> sampler_;
  bool over_ = false;
};

}  // namespace tensorwire::fabric
