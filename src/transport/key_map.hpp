// A small hash map from 32-bit keys to owned objects: open addressing, linear probing, at most half full. A look-up is
// one multiplication and, nearly always, one cache line. No decision of the engine may depend on hash order: count_if()
// is for set-up questions whose answer does not depend on it, for_each() for what is done to each object by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace tensorwire::transport {

template <class T>
class KeyMap {
 public:
  KeyMap() : slots_(kInitialSlots) {}

  [[nodiscard]] T* find(std::uint32_t key) const noexcept {
    for (std::size_t i = home(key);; i = next(i)) {
      const Slot& slot = slots_[i];
      if (!slot.object) return nullptr;
      if (slot.key == key) return slot.object.get();
    }
  }

  /// Set-up path: may grow. `key` must not be in the map.
  T& insert(std::uint32_t key, std::unique_ptr<T> object) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    ++size_;
    return place(key, std::move(object));
  }

  /// Destroys the object; false when there is none.
  bool erase(std::uint32_t key) noexcept {
    std::size_t hole = home(key);
    while (slots_[hole].object && slots_[hole].key != key) hole = next(hole);
    if (!slots_[hole].object) return false;
    slots_[hole].object.reset();
    --size_;
    // Close the hole: whatever probed past it moves back, so that no tombstones are needed.
    for (std::size_t i = next(hole); slots_[i].object; i = next(i)) {
      const std::size_t distance_from_home = (i - home(slots_[i].key)) & (slots_.size() - 1);
      const std::size_t distance_from_hole = (i - hole) & (slots_.size() - 1);
      if (distance_from_home < distance_from_hole) continue;
      slots_[hole] = std::move(slots_[i]);
      hole = i;
    }
    return true;
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  template <class Predicate>
  [[nodiscard]] std::size_t count_if(Predicate predicate) const {
    std::size_t count = 0;
    for (const Slot& slot : slots_)
      if (slot.object && predicate(*slot.object)) ++count;
    return count;
  }

  template <class Function>
  void for_each(Function function) noexcept {
    for (Slot& slot : slots_)
      if (slot.object) function(*slot.object);
  }

 private:
  struct Slot {
    std::uint32_t key = 0;
    std::unique_ptr<T> object;
  };
  static constexpr std::size_t kInitialSlots = 64;

  [[nodiscard]] std::size_t home(std::uint32_t key) const noexcept {
    return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15ULL) >> 32) & (slots_.size() - 1);
  }
  [[nodiscard]] std::size_t next(std::size_t i) const noexcept { return (i + 1) & (slots_.size() - 1); }

  T& place(std::uint32_t key, std::unique_ptr<T> object) noexcept {
    std::size_t i = home(key);
    while (slots_[i].object) i = next(i);
    slots_[i] = {key, std::move(object)};
    return *slots_[i].object;
  }

  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (Slot& slot : old)
      if (slot.object) place(slot.key, std::move(slot.object));
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace tensorwire::transport
