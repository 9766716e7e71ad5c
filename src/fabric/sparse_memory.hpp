// The memory of a simulated host, as its engine knows it: addresses without bytes. Payload is never stored; what the
// collective runner reads, the header at the start of each slot, is: the pages that hold headers are the only ones that
// ever exist. Owned by whoever runs on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "collective/plan.hpp"
#include "transport/memory.hpp"

namespace tensorwire::fabric {

/// Every region of a simulated host is of this kind.
class SparseMemory : public transport::MemoryOps {
 public:
  /// The bytes that a message from this address begins with, where they are kept (kSlotHeaderBytes of them); else null.
  [[nodiscard]] virtual const std::byte* header_at(std::uint64_t /*address*/) const noexcept { return nullptr; }
  bool load(std::uint64_t, std::span<std::byte>, std::uint32_t*) noexcept override { return true; }
  bool store(std::uint64_t, std::span<const std::byte>, std::uint32_t*) noexcept override { return true; }
};

/// An address range of slots, of which only headers are kept.
class SlotMemory final : public SparseMemory {
 public:
  /// @throws Error when the system has no address space left.
  SlotMemory(std::size_t bytes, std::size_t slot_bytes);
  ~SlotMemory() override;
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t address() const noexcept { return reinterpret_cast<std::uintptr_t>(data_); }
  [[nodiscard]] const std::byte* header_at(std::uint64_t address) const noexcept override {
    return (address - this->address()) % slot_bytes_ == 0 ? data_ + (address - this->address()) : nullptr;
  }

  bool store(std::uint64_t address, std::span<const std::byte> from, std::uint32_t*) noexcept override {
    std::memcpy(data_ + (address - this->address()), from.data(), from.size());
    return true;
  }

 private:
  std::byte* data_;
  std::size_t bytes_;
  std::size_t slot_bytes_;
};

}  // namespace tensorwire::fabric
