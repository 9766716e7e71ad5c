// Changes the host that this program runs on.
#pragma once

#include "host/configure/apply.hpp"
#include "host/tree/live_tree.hpp"

namespace tensorwire::host {

class LiveEffects final : public Effects {
 public:
  [[nodiscard]] std::string perform(const Action& action) override;
  [[nodiscard]] PortState read(const std::string& netdev) override;
  [[nodiscard]] std::vector<Witness> hear(const PortState& state, const Wanted& wanted) override;
};

/// The interface over which the person at this terminal is logged in (SSH_CONNECTION, also above sudo); empty: none.
[[nodiscard]] std::string session_interface();

/// Bytes a second that an interface sends and receives, measured over a fifth of a second; unknown without its
/// counters.
[[nodiscard]] Fact<double> traffic(const std::string& netdev);

}  // namespace tensorwire::host
