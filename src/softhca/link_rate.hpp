// How fast a port is, as the codes of the IB specification (PortInfo) have it: verbs and sysfs know no other way to say
// a rate.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace tensorwire::softhca {

struct LinkRate {
  std::uint64_t up_to_mbps;
  std::uint8_t width;  ///< 1: 1x, 2: 4x
  std::uint8_t speed;  ///< 1 SDR 2.5, 2 DDR 5, 4 QDR 10, 8 FDR-10, 32 EDR 25, 64 HDR 50, 128 NDR 100 Gb/s a lane
};

inline constexpr std::array kLinkRates = std::to_array<LinkRate>({
    {1'000, 1, 1},
    {10'000, 1, 8},
    {20'000, 2, 2},
    {25'000, 1, 32},
    {40'000, 2, 8},
    {50'000, 1, 64},
    {100'000, 2, 32},
    {200'000, 2, 64},
    {~std::uint64_t{0}, 2, 128},
});

/// The slowest that is at least `mbps`; the fastest has no end.
[[nodiscard]] inline const LinkRate& link_rate(std::uint64_t mbps) noexcept {
  return *std::ranges::find_if(kLinkRates, [mbps](const LinkRate& rate) { return mbps <= rate.up_to_mbps; });
}

}  // namespace tensorwire::softhca
