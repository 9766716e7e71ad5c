// What a RoCE port should be like: one lossless priority, the DSCP that leads into it, and what goes with that.
#pragma once

#include <cstdint>
#include <optional>

namespace tensorwire::host {

struct Wanted {
  unsigned priority = 3;                 ///< the lossless one: PFC on it and on no other
  unsigned dscp = 26;                    ///< of the data: traffic class 104
  unsigned cnp_dscp = 48;                ///< of congestion notifications
  std::optional<unsigned> cnp_priority;  ///< 6, or 7 where Broadcom's firmware expects that
  unsigned share = 50;                   ///< per cent of the link that the lossless class gets when others want it, too
  std::optional<unsigned> mtu;           ///< bytes; not given: what there is, if a path MTU of 4096 fits into it

  [[nodiscard]] unsigned tos() const noexcept { return dscp << 2; }
};

/// A path MTU of 4096 and the headers around it (RoCEv2 over IPv6).
inline constexpr unsigned kSmallestMtu = 4200;

}  // namespace tensorwire::host
