// Copy and CRC block by block. With VPCLMULQDQ the CRC of a block that the copy just brought into the first-level cache
// is about a tenth of the copy, so one kernel for both has nothing to win (bench/wire_bench.cpp). What matters is the
// order: a consumer may poll the end of a message in memory (as ib_write_lat does), so its last bytes become visible
// last.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "wire/icrc.hpp"

namespace tensorwire::wire {

namespace {

/// A block and its copy stay in the first-level cache between copy and CRC. A packet of the largest path MTU is one.
constexpr std::size_t kBlockBytes = 4096;

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

// memmove and not memcpy: GCC knows that a block is at most 4096 bytes and turns memcpy into an inline rep movsq, which
// is slow where source and destination are not equally aligned, as behind a packet's headers they never are.
std::uint32_t crc_copy(std::uint32_t crc, std::byte* to, std::span<const std::byte> from) noexcept {
  while (from.size() > kBlockBytes) {
    std::memmove(to, from.data(), kBlockBytes);
    crc = crc_update(crc, from.first(kBlockBytes));
    to += kBlockBytes;
    from = from.subspan(kBlockBytes);
  }
  const std::size_t head = from.size() - std::min(from.size(), kTailBytes);
  if (head != 0) std::memmove(to, from.data(), head);  // promises no order among its own stores
  release_tail(to + head, from.subspan(head));
  return crc_update(crc, from);
}

}  // namespace tensorwire::wire
