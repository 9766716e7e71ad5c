// What the same-host link counts. Kept by LocalLink, counted by the ends of its channels.
#pragma once

#include <cstdint>

namespace tensorwire::softhca {

struct LocalLinkCounters {
  std::uint64_t tx_records = 0, rx_records = 0;
  std::uint64_t rx_inline_bytes = 0, rx_pulled_bytes = 0;  ///< payload by the way it came
  std::uint64_t rx_withdrawn = 0;                          ///< records that their sender took back before they were in
  std::uint64_t tx_lost = 0;                               ///< records for a peer that was gone
  std::uint64_t malformed = 0;                             ///< offers and records that no correct peer makes
  std::uint64_t wakeups = 0;                               ///< system calls made to wake a sleeping peer
  std::uint64_t accepted = 0, refused = 0, closed = 0;     ///< channels from peers
};

}  // namespace tensorwire::softhca
