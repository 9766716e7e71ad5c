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
  const auto start = reinterpret_cast<std::uint64_t>(address);
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    const std::size_t at = last_ + i < regions_.size() ? last_ + i : last_ + i - regions_.size();
    if (!covers(regions_[at], start, bytes)) continue;
    last_ = at;
    return regions_[at].lkey();
  }
  verbs::MemorySpan memory;
  memory.address = const_cast<void*>(address);  // registered for reading only
  memory.length = bytes;
  auto region = verbs::register_gpu_memory_with_hca(domain_, memory, {false, false, false});
  if (regions_.size() < kMostRegions) {
    regions_.push_back(std::move(region));
    last_ = regions_.size() - 1;
  } else {
    last_ = evict_at_;
    regions_[last_] = std::move(region);
    evict_at_ = (evict_at_ + 1) % kMostRegions;
  }
  return regions_[last_].lkey();
}

void RegistrationCache::forget(const void* address, std::size_t bytes) noexcept {
  const auto start = reinterpret_cast<std::uint64_t>(address);
  const auto overlaps = [&](const verbs::MemoryRegion& region) {
    return region.address() < start + bytes && start < region.address() + region.length();
  };
  std::erase_if(regions_, overlaps);
  last_ = evict_at_ = 0;
}

}  // namespace tensorwire::comm
