// The times that RC encodes in a few bits: acknowledge timeout and RNR timer (IB specification vol. 1, 9.7.6.1.3 and
// table 45).
#pragma once

#include <array>
#include <cstdint>

#include "base/time.hpp"

namespace tensorwire::transport {

/// 4.096 us x 2^code; code 0 means no timeout.
[[nodiscard]] constexpr Ps ack_timeout(std::uint8_t code) noexcept {
  return code == 0 ? kNever : (4'096 * kNanosecond) << (code & 31U);
}

inline constexpr std::array<Ps, 32> kRnrTimer = {
    655'360 * kMicrosecond, 10 * kMicrosecond,      20 * kMicrosecond,      30 * kMicrosecond,
    40 * kMicrosecond,      60 * kMicrosecond,      80 * kMicrosecond,      120 * kMicrosecond,
    160 * kMicrosecond,     240 * kMicrosecond,     320 * kMicrosecond,     480 * kMicrosecond,
    640 * kMicrosecond,     960 * kMicrosecond,     1'280 * kMicrosecond,   1'920 * kMicrosecond,
    2'560 * kMicrosecond,   3'840 * kMicrosecond,   5'120 * kMicrosecond,   7'680 * kMicrosecond,
    10'240 * kMicrosecond,  15'360 * kMicrosecond,  20'480 * kMicrosecond,  30'720 * kMicrosecond,
    40'960 * kMicrosecond,  61'440 * kMicrosecond,  81'920 * kMicrosecond,  122'880 * kMicrosecond,
    163'840 * kMicrosecond, 245'760 * kMicrosecond, 327'680 * kMicrosecond, 491'520 * kMicrosecond};

/// Time to wait after an RNR NAK that carries this 5-bit code.
[[nodiscard]] constexpr Ps rnr_wait(std::uint8_t code) noexcept { return kRnrTimer[code & 31U]; }

}  // namespace tensorwire::transport
