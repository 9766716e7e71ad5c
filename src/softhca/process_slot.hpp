// How a QPN says whose it is. Several processes share an address and UDP port 4791; each has a slot there, and the slot
// is the first byte of every QPN of the process: [23:16] slot, [15:13] shard, [12:0] random. So whoever sees a packet's
// destination QPN (the kernel's socket filter, another process) knows its owner.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/gid.hpp"
#include "wire/headers.hpp"

namespace tensorwire::softhca {

inline constexpr unsigned kSlotShift = 16;
inline constexpr std::uint32_t kSerialMask = 0x1fff;  ///< the random part
/// Slot 0 is nobody's: QPNs 0 and 1 are special.
inline constexpr unsigned kLowestSlot = 1;
inline constexpr unsigned kHighestSlot = 255;
inline constexpr unsigned kSlots = kHighestSlot - kLowestSlot + 1;
/// Where a BTH has the slot: the first byte of DestQP.
inline constexpr std::size_t kBthSlotOffset = 5;
static_assert((wire::kQpnMask >> kSlotShift) == kHighestSlot);

[[nodiscard]] constexpr std::uint8_t slot_of(std::uint32_t qpn) noexcept {
  return static_cast<std::uint8_t>(qpn >> kSlotShift);
}

/// A process at an address, as its peers see it.
struct ProcessAddress {
  wire::Gid gid;
  std::uint8_t slot = 0;

  bool operator==(const ProcessAddress&) const = default;
};

}  // namespace tensorwire::softhca
