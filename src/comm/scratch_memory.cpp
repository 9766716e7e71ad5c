#include "comm/scratch_memory.hpp"

#include <sys/mman.h>

#include <cerrno>

#include "base/error.hpp"
#include "base/units.hpp"

namespace tensorwire::comm {

namespace {

constexpr std::size_t kHugePage = 2U << 20;

}  // namespace

ScratchMemory::ScratchMemory(std::size_t bytes) {
  const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
  void* memory = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw system_error("allocate " + format_bytes(rounded) + " of scratch memory", errno,
                       "Use smaller slots or a smaller depth");
  }
  bytes_ = {static_cast<std::byte*>(memory), rounded};
  // Fewer page-table walks for whoever copies out of it; a wish, not a need.
  if (rounded >= kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);
  // Now, not in the first operation.
  madvise(memory, rounded, MADV_POPULATE_WRITE);
}

ScratchMemory::~ScratchMemory() { munmap(bytes_.data(), bytes_.size()); }

}  // namespace tensorwire::comm
