// Sizes and durations as people write them ("256KiB", "75us") to numbers and back. Exact: a text that is not a whole
// number of bytes or picoseconds is an error, never rounded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/time.hpp"

namespace tensorwire {

/// Bytes from "262144", "256KiB", "1.5MiB", "4kB". Units: B; KiB MiB GiB TiB (K M G T mean the same, as in nccl-tests);
/// kB MB GB TB are powers of 1000. Throws Error.
[[nodiscard]] std::uint64_t parse_bytes(std::string_view text);

/// Picoseconds from "75us", "1.5ms", "2s", "0". Units: ps ns us ms s min. A number other than 0 needs its unit. Throws
/// Error.
[[nodiscard]] Ps parse_duration(std::string_view text);

/// The largest binary unit that gives a whole number: 262144 is "256KiB", 1000 is "1000B".
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);

/// The largest unit not above the duration, up to three decimals: 75000000 is "75us", 1234567 is "1.235us".
[[nodiscard]] std::string format_duration(Ps duration);

}  // namespace tensorwire
