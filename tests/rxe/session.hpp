// The sessions: what both sides do once their queue pairs can be connected. Which side initiates, what is transferred
// and what must come of it is in the Settings. A session throws std::runtime_error at the first byte, completion or
// status that is not as it must be.
#pragma once

#include <cstdint>
#include <string>

#include "control.hpp"
#include "plan.hpp"
#include "station.hpp"

namespace tensorwire::rxe {

enum class Role : std::uint8_t { kInitiator, kTarget };

struct Outcome {
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;     ///< payload of the initiator's operations
  std::uint64_t repeated = 0;  ///< messages that nobody acknowledges and that were asked for again
};

/// Mixed operations on a reliable connection: each has its slot of memory at the target, and as many are in flight as
/// the window allows.
[[nodiscard]] Outcome run_reliable(Station& station, Control& control, const Settings& settings, Role role);

/// Datagrams (UD) or messages of an unreliable connection (UC), each answered by one of the same length.
[[nodiscard]] Outcome run_answered(Station& station, Control& control, const Settings& settings, Role role);

/// Memory windows: bound, used and invalidated, one after another.
[[nodiscard]] Outcome run_leases(Station& station, Control& control, const Settings& settings, Role role);

/// One operation that the target must refuse.
[[nodiscard]] Outcome run_refusal(Station& station, Control& control, const Settings& settings, Role role);

/// Throws with the place of the first difference.
void expect_equal(std::span<const std::byte> arrived, std::span<const std::byte> wanted, const std::string& what);

}  // namespace tensorwire::rxe
