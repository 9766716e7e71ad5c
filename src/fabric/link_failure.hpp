// A link that fails, and maybe comes back. Owned by its caller; lives as long as the fabric runs.
#pragma once

#include <cstdint>

#include "fabric/fabric.hpp"

namespace tensorwire::fabric {

struct LinkFailureConfig {
  std::uint32_t link = 0;  ///< of the topology
  Ps at = 0;
  Ps until = kNever;
  Ps reroute_after = kMillisecond;  ///< until switches no longer choose it; it is chosen again as soon as it is back
};

class LinkFailure final : public Actor {
 public:
  LinkFailure(Fabric& fabric, const LinkFailureConfig& config) : fabric_(fabric), config_(config) {
    fabric.call_at(config.at, *this);
  }

  void act(Ps now) override {
    if (now >= config_.until) {
      fabric_.set_link(config_.link, true);
      return fabric_.reroute();
    }
    if (!failed_) {
      failed_ = true;
      fabric_.set_link(config_.link, false);
      fabric_.call_at(now + config_.reroute_after, *this);
      if (config_.until != kNever) fabric_.call_at(config_.until, *this);
    } else {
      fabric_.reroute();
    }
  }

 private:
  Fabric& fabric_;
  LinkFailureConfig config_;
  bool failed_ = false;
};

}  // namespace tensorwire::fabric
