// Time in Tensorwire is a signed 64-bit count of picoseconds since an origin that its owner chooses: process
// start for sockets, zero for the simulator. 2^63 ps are 106 days. Only base/clock.hpp reads a real clock.
#pragma once

#include <cstdint>
#include <limits>

namespace tensorwire {

using Ps = std::int64_t;

inline constexpr Ps kNanosecond = 1'000;
inline constexpr Ps kMicrosecond = 1'000 * kNanosecond;
inline constexpr Ps kMillisecond = 1'000 * kMicrosecond;
inline constexpr Ps kSecond = 1'000 * kMillisecond;

/// A deadline that never comes.
inline constexpr Ps kNever = std::numeric_limits<Ps>::max();

}  // namespace tensorwire
