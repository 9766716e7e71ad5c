// Memory windows: binding, invalidating, and what may be reached through them. (IB specification vol. 1, 10.6.7)
#include "transport/memory.hpp"

namespace tensorwire::transport {
namespace {

/// [address, address + length) lies inside [begin, begin + size); no sum is formed that could wrap.
constexpr bool inside(std::uint64_t address, std::uint64_t length, std::uint64_t begin, std::uint64_t size) noexcept {
  return address >= begin && length <= size && address - begin <= size - length;
}

}  // namespace

/// No region has a key that a tag of this window could come upon.
bool MemoryTable::window_number_free(std::uint32_t number) const noexcept {
  if (number == 0 || windows_.find(number) != nullptr) return false;
  for (std::uint32_t tag = 0; tag < 1U << kWindowTagBits; ++tag)
    if (regions_.find(number << kWindowTagBits | tag) != nullptr) return false;
  return true;
}

std::uint32_t MemoryTable::add_window(PdId pd, WindowType type) {
  if (windows_.size() == kMaxWindows) return 0;
  std::uint32_t key = 0;
  do {
    key = static_cast<std::uint32_t>(random_.next() >> 32);
  } while (!window_number_free(window_of(key)));
  auto window = std::make_unique<MemoryWindow>();
  window->type = type;
  window->pd = pd;
  window->key = key;
  windows_.insert(window_of(key), std::move(window));
  return key;
}

bool MemoryTable::remove_window(std::uint32_t key) noexcept {
  MemoryWindow* window = windows_.find(window_of(key));
  if (window == nullptr) return false;
  unbind(*window);
  return windows_.erase(window_of(key));
}

void MemoryTable::unbind(MemoryWindow& window) noexcept {
  if (window.region != nullptr) --window.region->windows;
  window.region = nullptr;
}

bool MemoryTable::bind(std::uint32_t new_key, const WindowBinding& binding, PdId pd, std::uint32_t qpn) noexcept {
  MemoryWindow* window = windows_.find(window_of(new_key));
  if (window == nullptr || window->pd != pd) return false;  // C10-72
  const bool closes = binding.length == 0;
  if (window->type == WindowType::k2 && (window->region != nullptr || closes)) return false;  // o10-37.2.30, .40

  MemoryRegion* region = closes ? nullptr : regions_.find(binding.lkey);
  if (!closes) {
    if (region == nullptr || region->pd != pd) return false;
    if ((region->access & kAccessWindowBind) == 0) return false;  // C10-73
    const bool writable = (binding.access & (kAccessRemoteWrite | kAccessRemoteAtomic)) != 0;
    if (writable && (region->access & kAccessLocalWrite) == 0) return false;                   // C10-74
    if (!inside(binding.address, binding.length, region->iova, region->length)) return false;  // C10-75
    if ((binding.access & ~kAccessRemote) != 0) return false;
  }
  unbind(*window);
  window->key = new_key;
  window->region = region;
  window->qpn = qpn;
  window->address = binding.address;
  window->length = binding.length;
  window->access = binding.access;
  if (region != nullptr) ++region->windows;
  return true;
}

bool MemoryTable::can_invalidate(std::uint32_t key, PdId pd, std::uint32_t qpn) const noexcept {
  const MemoryWindow* window = windows_.find(window_of(key));
  return window != nullptr && window->key == key && window->type == WindowType::k2 && window->region != nullptr &&
         window->pd == pd && window->qpn == qpn;
}

bool MemoryTable::invalidate(std::uint32_t key, PdId pd, std::uint32_t qpn) noexcept {
  if (!can_invalidate(key, pd, qpn)) return false;
  unbind(*windows_.find(window_of(key)));
  return true;
}

void MemoryTable::unbind_all(std::uint32_t qpn) noexcept {
  windows_.for_each([qpn](MemoryWindow& window) {
    if (window.type == WindowType::k2 && window.qpn == qpn) unbind(window);
  });
}

AccessResult MemoryTable::check_window(std::uint32_t key, PdId pd, std::uint32_t qpn, std::uint64_t address,
                                       std::uint64_t length, std::uint32_t rights, Piece& piece) const noexcept {
  const MemoryWindow* window = windows_.find(window_of(key));
  if (window == nullptr || window->key != key || window->region == nullptr) return AccessResult::kBadKey;
  if (window->pd != pd || (window->type == WindowType::k2 && window->qpn != qpn)) return AccessResult::kWrongPd;
  if (!inside(address, length, window->address, window->length)) return AccessResult::kOutOfRange;
  if ((window->access & rights) != rights) return AccessResult::kNoRight;
  const MemoryRegion& region = *window->region;
  piece = {&region, region.address + (address - region.iova), static_cast<std::uint32_t>(length)};
  return AccessResult::kOk;
}

}  // namespace tensorwire::transport
