// What a switch prints about its queues and its PFC frames, as text that somebody saved: SONiC's `show queue counters`
// and `show pfc counters`, alone or one after the other, and tables of others that have the same columns.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "host/facts/netdev.hpp"

namespace tensorwire::host {

struct SwitchQueue {
  std::uint64_t packets = 0, bytes = 0, dropped = 0;
};

/// Of each switch port, by priority.
using PfcFrames = std::map<std::string, std::array<std::uint64_t, kPriorities>>;

struct SwitchCounters {
  std::map<std::pair<std::string, std::string>, SwitchQueue> queues;  ///< by port and queue: ("Ethernet4", "UC3")
  PfcFrames pfc_received;                                             ///< "Port Rx": its neighbour pauses the switch
  PfcFrames pfc_sent;                                                 ///< "Port Tx": the switch pauses its neighbour

  [[nodiscard]] bool empty() const noexcept { return queues.empty() && pfc_received.empty() && pfc_sent.empty(); }
};

/// Text that has no such table gives an empty one; of a line cut short nothing is taken.
[[nodiscard]] SwitchCounters parse_switch_counters(std::string_view text);

}  // namespace tensorwire::host
