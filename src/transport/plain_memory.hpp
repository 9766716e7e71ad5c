// Memory of this process that nobody unmaps: MemoryOps for the virtual-time loop and for tests.
#pragma once

#include "transport/memory.hpp"

namespace tensorwire::transport {

class PlainMemory final : public MemoryOps {
 public:
  bool load(std::uint64_t address, std::span<std::byte> to, std::uint32_t* crc) noexcept override;
  bool store(std::uint64_t address, std::span<const std::byte> from, std::uint32_t* crc) noexcept override;
  bool atomic(std::uint64_t address, const AtomicOperation& operation, std::uint64_t& original) noexcept override;
};

}  // namespace tensorwire::transport
