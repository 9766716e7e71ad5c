// Copy and CRC in one pass over the cache. A consumer may poll the end of a message in memory (as ib_write_lat does),
// so its last bytes become visible last.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "wire/icrc.hpp"

namespace tensorwire::wire {

namespace {

/// A block stays in the first-level cache between its copy and its CRC.
constexpr std::size_t kBlockBytes = 2048;

/// What is stored by itself, afterwards: the largest word that a consumer may poll.
constexpr std::size_t kTailBytes = sizeof(std::uint64_t);

/// Stores up to kTailBytes after everything before them: as one word where it is aligned, else byte after byte.
void release_tail(std::byte* to, std::span<const std::byte> from) noexcept {
  if (from.size() == kTailBytes && reinterpret_cast<std::uintptr_t>(to) % alignof(std::uint64_t) == 0) {
    std::uint64_t word = 0;
    std::memcpy(&word, from.data(), sizeof word);
    std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(to)).store(word, std::memory_order_release);
    return;
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::atomic_ref<std::byte>(to[i]).store(from[i], std::memory_order_release);
  }
}

}  // namespace

std::uint32_t crc_copy(std::uint32_t crc, std::byte* to, std::span<const std::byte> from) noexcept {
  const std::size_t tail = std::min(from.size(), kTailBytes);
  while (from.size() > tail) {
    const std::size_t n = std::min(from.size() - tail, kBlockBytes);
    std::memcpy(to, from.data(), n);  // promises no order among its own stores
    crc = crc_update(crc, {to, n});
    to += n;
    from = from.subspan(n);
  }
  release_tail(to, from);
  return crc_update(crc, from);
}

}  // namespace tensorwire::wire
