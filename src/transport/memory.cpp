#include "transport/memory.hpp"

#include <atomic>

namespace tensorwire::transport {

std::uint64_t apply_atomic(std::uint64_t& word, const AtomicOperation& operation) noexcept {
  const std::atomic_ref<std::uint64_t> shared(word);
  static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free, "a lock of ours would mean nothing to others");
  if (!operation.compare) return shared.fetch_add(operation.operand);
  std::uint64_t original = operation.operand;
  shared.compare_exchange_strong(original, operation.swap);  // sets `original` where it finds something else
  return original;
}

const MemoryRegion& MemoryTable::add(MemoryRegion region) {
  do {
    region.key = static_cast<std::uint32_t>(random_.next() >> 32);
  } while (region.key == 0 || regions_.find(region.key) != nullptr || windows_.find(window_of(region.key)) != nullptr);
  return regions_.insert(region.key, std::make_unique<MemoryRegion>(region));
}

bool MemoryTable::remove(std::uint32_t key) noexcept {
  const MemoryRegion* region = regions_.find(key);
  if (region != nullptr && region->windows != 0) return false;
  return regions_.erase(key);
}

const MemoryRegion* MemoryTable::find(std::uint32_t key) const noexcept { return regions_.find(key); }

std::size_t MemoryTable::count(PdId pd) const {
  return regions_.count_if([pd](const MemoryRegion& region) { return region.pd == pd; }) +
         windows_.count_if([pd](const MemoryWindow& window) { return window.pd == pd; });
}

AccessResult MemoryTable::check(std::uint32_t key, PdId pd, std::uint64_t address, std::uint64_t length,
                                std::uint32_t rights, Piece& piece) const noexcept {
  const MemoryRegion* region = regions_.find(key);
  if (region == nullptr) return AccessResult::kBadKey;
  if (region->pd != pd) return AccessResult::kWrongPd;
  // Each subtraction is safe by the comparison before it: no sum of two numbers that a peer chose is ever formed.
  if (address < region->iova || length > region->length || address - region->iova > region->length - length)
    return AccessResult::kOutOfRange;
  if ((region->access & rights) != rights) return AccessResult::kNoRight;
  piece = {region, region->address + (address - region->iova), static_cast<std::uint32_t>(length)};
  return AccessResult::kOk;
}

}  // namespace tensorwire::transport
