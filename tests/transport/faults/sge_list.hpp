// A scatter/gather list at rest, and what an application makes of an address range: one list or another.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/random.hpp"
#include "transport/types.hpp"

namespace tensorwire::transport::faults {

struct SgeList {
  std::array<Sge, 4> items;
  std::uint8_t count = 0;

  void add(const Sge& sge) noexcept { items[count++] = sge; }
  [[nodiscard]] std::span<const Sge> span() const noexcept { return {items.data(), count}; }
};

/// The range in up to four adjacent elements, empty ones among them.
[[nodiscard]] inline SgeList cut(Random& random, std::uint64_t address, std::uint32_t length, std::uint32_t key) {
  SgeList sges;
  while (sges.count < 3 && random.below(2) == 0) {
    const std::uint32_t part = random.below(length + 1);
    sges.add({address, part, key});
    address += part;
    length -= part;
  }
  if (length != 0 || random.below(2) == 0) sges.add({address, length, key});
  return sges;
}

}  // namespace tensorwire::transport::faults
