#include "fabric/sparse_memory.hpp"

#include <sys/mman.h>

#include <cerrno>

#include "base/error.hpp"

namespace tensorwire::fabric {

SlotMemory::SlotMemory(std::size_t bytes, std::size_t slot_bytes)
    : data_(nullptr), bytes_(bytes), slot_bytes_(slot_bytes) {
  void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED)
    throw system_error("set aside addresses for a simulated host", errno, "Simulate fewer hosts");
  data_ = static_cast<std::byte*>(pages);
}

SlotMemory::~SlotMemory() { munmap(data_, bytes_); }

}  // namespace tensorwire::fabric
