#include "base/mapped_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/error.hpp"
#include "base/round_up.hpp"
#include "base/units.hpp"

namespace tensorwire {

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = 2U << 20;
constexpr std::size_t kWorthHugePages = 256U << 10;

/// Older kernels place a mapping anywhere: map one huge page more and give the ends back.
std::byte* map_aligned(std::size_t size, std::size_t alignment) noexcept {
  const std::size_t reserved = size + alignment - kPage;
  void* const memory = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(memory);
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  const std::size_t before = round_up(at, alignment) - at;
  const std::size_t after = reserved - before - size;
  if (before != 0) munmap(begin, before);
  if (after != 0) munmap(begin + before + size, after);
  return begin + before;
}

}  // namespace

MappedMemory::MappedMemory(std::size_t bytes, const std::string& what, const std::string& advice) {
  const bool huge = bytes >= kWorthHugePages;
  const std::size_t alignment = huge ? kHugePage : kPage;
  const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), alignment);
  std::byte* const memory = size < bytes ? nullptr : map_aligned(size, alignment);
  if (memory == nullptr) {
    throw system_error("allocate " + format_bytes(bytes) + " of " + what, size < bytes ? ENOMEM : errno, advice);
  }
  bytes_ = {memory, size};
  if (huge) madvise(memory, size, MADV_HUGEPAGE);  // a wish, not a need
  madvise(memory, size, MADV_POPULATE_WRITE);      // now, not in the first operation
}

MappedMemory::~MappedMemory() { munmap(bytes_.data(), bytes_.size()); }

}  // namespace tensorwire
