// Sizes as multiples of what they are handed out in: pages, cache lines, chunks.
#pragma once

#include <cstdint>

namespace tensorwire {

/// The smallest multiple of `unit` that is not below `value`.
[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

}  // namespace tensorwire
