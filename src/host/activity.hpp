// What a host's ports did between two looks at their counters: which priority the data rode in, who paused whom, how
// congestion control answered, what was lost. A pure function of both looks; a counter that a driver does not have is
// not 0.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.hpp"
#include "host/facts/host.hpp"

namespace tensorwire::host {

/// Differences.
struct PriorityActivity {
  std::optional<std::uint64_t> sent_bytes, received_bytes;
  std::optional<std::uint64_t> pauses_sent;      ///< it stopped its switch port
  std::optional<std::uint64_t> pauses_received;  ///< its switch port stopped it
  std::optional<std::uint64_t> paused_us;        ///< for how long
  std::optional<std::uint64_t> discards;

  [[nodiscard]] bool any() const;
};

using Priorities = std::array<PriorityActivity, kPriorities>;
using BytesOf = std::optional<std::uint64_t> PriorityActivity::*;

/// What the statistics of an interface's driver say by priority, under the names of whichever driver it is.
[[nodiscard]] Priorities priorities_between(const Fact<Counters>& before, const Fact<Counters>& after);

struct PortActivity {
  std::string device;
  unsigned port = 1;
  std::string netdev;
  Priorities priorities;
  std::optional<std::uint64_t> rdma_sent_bytes, rdma_received_bytes;
  /// Counters of congestion control and of loss that moved.
  std::vector<std::pair<std::string, std::uint64_t>> events;
  /// What that means, a sentence each.
  std::vector<std::string> verdicts;
};

[[nodiscard]] std::vector<PortActivity> activity_between(const Host& before, const Host& after, Ps elapsed);

}  // namespace tensorwire::host
