#include "comm/registration_cache.hpp"

#include <algorithm>

namespace tensorwire::comm {

namespace {

// A decode loop has two buffers for each of a hundred layers; beyond that somebody allocates anew for every call.
constexpr std::size_t kMostRegions = 1024;

bool covers(const verbs::MemoryRegion& region, std::uint64_t address, std::size_t bytes) noexcept {
  return region.address() <= address && address + bytes <= region.address() + region.length();
}

}  // namespace

std::uint32_t RegistrationCache::key_of(const void* address, std::size_t bytes) {
  return find(address, bytes, false).region.lkey();
}

const verbs::MemoryRegion& RegistrationCache::writable(void* address, std::size_t bytes) {
  return find(address, bytes, true).region;
}

const RegistrationCache::Entry& RegistrationCache::find(const void* address, std::size_t bytes, bool writable) {
  const auto start = reinterpret_cast<std::uint64_t>(address);
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    const std::size_t at = last_ + i < regions_.size() ? last_ + i : last_ + i - regions_.size();
    if (!covers(regions_[at].region, start, bytes) || (writable && !regions_[at].writable)) continue;
    if (!regions_[at].region.still_valid()) {
      forget(address, bytes);
      break;
    }
    last_ = at;
    return regions_[at];
  }
  verbs::MemorySpan memory;
  memory.address = const_cast<void*>(address);  // only read, where it is not writable
  memory.length = bytes;
  Entry entry{verbs::register_gpu_memory_with_hca(domain_, memory, {writable, writable, false}), writable};
  if (regions_.size() < kMostRegions) {
    regions_.push_back(std::move(entry));
    last_ = regions_.size() - 1;
  } else {
    last_ = evict_at_;
    regions_[last_] = std::move(entry);
    evict_at_ = (evict_at_ + 1) % kMostRegions;
  }
  return regions_[last_];
}

void RegistrationCache::forget(const void* address, std::size_t bytes) noexcept {
  const auto start = reinterpret_cast<std::uint64_t>(address);
  const auto overlaps = [&](const Entry& entry) {
    return entry.region.address() < start + bytes && start < entry.region.address() + entry.region.length();
  };
  std::erase_if(regions_, overlaps);
  last_ = evict_at_ = 0;
}

void RegistrationCache::clear() noexcept {
  regions_.clear();
  last_ = evict_at_ = 0;
}

}  // namespace tensorwire::comm
