// Registrations of user memory, kept for the next operation on the same buffer: registering costs more than a small
// all-reduce. It owns the regions. A range that the caller frees must be told to forget(): the cache cannot see that,
// and on a NIC the old pages would be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "verbs/gpudirect_mr.hpp"

namespace tensorwire::comm {

class RegistrationCache {
 public:
  explicit RegistrationCache(std::shared_ptr<verbs::ProtectionDomain> domain) : domain_(std::move(domain)) {}

  /// The lkey of a region that covers the range, registered now if need be, for reading by the HCA.
  /// @throws Error when the memory cannot be registered.
  [[nodiscard]] std::uint32_t key_of(const void* address, std::size_t bytes);
  /// Likewise, for peers to write into. The region lives until its range is forgotten or many others came.
  [[nodiscard]] const verbs::MemoryRegion& writable(void* address, std::size_t bytes);
  void forget(const void* address, std::size_t bytes) noexcept;
  void clear() noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return regions_.size(); }

 private:
  struct Entry {
    verbs::MemoryRegion region;
    bool writable = false;
  };

  const Entry& find(const void* address, std::size_t bytes, bool writable);

  std::shared_ptr<verbs::ProtectionDomain> domain_;
  std::vector<Entry> regions_;
  std::size_t last_ = 0;      ///< where the last look-up ended: programs walk their buffers in a cycle
  std::size_t evict_at_ = 0;  ///< the oldest one, once the cache is full
};

}  // namespace tensorwire::comm
