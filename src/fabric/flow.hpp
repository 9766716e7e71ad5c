// Bulk traffic: RDMA WRITEs from one host to another over a queue pair of its own. Owned by its caller; lives as long
// as the fabric runs.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fabric/fabric.hpp"

namespace tensorwire::fabric {

struct FlowConfig {
  HostId from = 0;
  HostId to = 0;
  std::uint32_t message_bytes = 1U << 20;
  std::uint32_t messages = 1;     ///< 0: without end
  std::uint32_t outstanding = 2;  ///< posted at a time
  Ps start = 0;
  ConnectionConfig connection = {};
  std::function<void()> on_finished = {};
};

class Flow final : public Actor, public QpUser {
 public:
  /// Connects, and starts when its time comes. @throws Error
  Flow(Fabric& fabric, const FlowConfig& config);

  [[nodiscard]] bool finished() const noexcept { return config_.messages != 0 && completed_ == config_.messages; }
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  [[nodiscard]] const FlowConfig& config() const noexcept { return config_; }
  /// Messages whose acknowledgement has come.
  [[nodiscard]] std::uint64_t completed() const noexcept { return completed_; }
  [[nodiscard]] std::uint64_t completed_bytes() const noexcept { return completed_ * config_.message_bytes; }
  /// The ports that its packets leave by.
  [[nodiscard]] std::vector<PortId> path() const { return fabric_.path_of(config_.from, *qp_); }
  [[nodiscard]] Ps finished_at() const noexcept { return finished_at_; }

  void act(Ps now) override;
  void on_completion(const transport::Completion& completion, Ps now) override;

 private:
  void post_next();

  Fabric& fabric_;
  FlowConfig config_;
  transport::QueuePair* qp_ = nullptr;
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
  Ps finished_at_ = 0;
  bool failed_ = false;
};

}  // namespace tensorwire::fabric
