// Things of one kind under numbers, in blocks that never move. What is given back last is taken first: it is still in a
// cache. All but the first block lie on huge pages where the system has them: a simulation of a thousand hosts jumps
// through tens of megabytes, and every jump would miss the TLB.
#pragma once

#include <sys/mman.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

namespace tensorwire::fabric {

inline constexpr std::size_t kHugePage = 2U << 20;

/// Advice: where it is not taken, ordinary pages do.
inline void prefer_huge_pages(void* memory, std::size_t bytes) noexcept { (void)madvise(memory, bytes, MADV_HUGEPAGE); }

template <class T>
class Numbered {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  [[nodiscard]] T& operator[](std::uint32_t number) noexcept { return *at(number); }
  [[nodiscard]] const T& operator[](std::uint32_t number) const noexcept { return *at(number); }

  /// What it was before is still in it.
  [[nodiscard]] std::uint32_t take() {
    if (free_.empty()) return add();
    const std::uint32_t number = free_.back();
    free_.pop_back();
    return number;
  }
  void give_back(std::uint32_t number) { free_.push_back(number); }
  /// The most that were taken at once.
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }

 private:
  struct Release {
    void operator()(std::byte* block) const noexcept { ::operator delete (block, std::align_val_t{kHugePage}); }
  };
  static constexpr std::uint32_t kInBlock = std::bit_floor(static_cast<std::uint32_t>(kHugePage / sizeof(T)));
  static constexpr int kShift = std::countr_zero(kInBlock);

  [[nodiscard]] T* at(std::uint32_t number) const noexcept {
    return std::launder(reinterpret_cast<T*>(blocks_[number >> kShift].get())) + (number & (kInBlock - 1));
  }

  std::uint32_t add() {
    if (size_ >> kShift == blocks_.size()) {
      void* const block = ::operator new (kHugePage, std::align_val_t{kHugePage});
      blocks_.emplace_back(static_cast<std::byte*>(block));
      if (blocks_.size() > 1) prefer_huge_pages(block, kHugePage);
    }
    ::new (static_cast<void*>(at(size_))) T{};
    return size_++;
  }

  std::vector<std::unique_ptr<std::byte, Release>> blocks_;
  std::vector<std::uint32_t> free_;
  std::uint32_t size_ = 0;
};

}  // namespace tensorwire::fabric
