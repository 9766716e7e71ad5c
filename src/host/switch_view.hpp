// What a switch's own counters add to what two hosts can see: which queue carried the data, what it dropped, which of
// its ports paused whom. A pure function of one or two dumps of counters.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "host/parse/switch_counters.hpp"

namespace tensorwire::host {

/// What moved from one dump to the other; a counter that was cleared in between counts from there.
[[nodiscard]] SwitchCounters moved(const SwitchCounters& before, const SwitchCounters& after);

/// "switch queue: UC3 of Ethernet4 carried 68.1 MB", a line each; then drops, then ports that pause and are paused.
/// @param burst  bytes on the wire: only queues that carried so much, within 5 %, are named; nothing: the busiest ones
[[nodiscard]] std::vector<std::string> switch_lines(const SwitchCounters& counters, std::optional<std::uint64_t> burst);

}  // namespace tensorwire::host
