// Host memory as the engine's links reach it: copies with the CRC fused in, and an error instead of a signal when the
// memory behind a region was unmapped or cut off after registration.
//
// How: a copy runs under a guard of its thread. The process's SIGSEGV and SIGBUS handlers, installed once when the
// first Hca opens, jump back to the guard of a thread that is inside a copy and pass every other fault on to the
// handlers that were there before. A program that later installs its own handlers without chaining to ours loses this
// protection, and nothing else.
#pragma once

#include <cstdint>

#include "transport/memory.hpp"

namespace tensorwire::softhca {

class HostMemory final : public transport::MemoryOps {
 public:
  /// Installs the fault handlers (once a process). @throws Error when the system refuses them.
  HostMemory();

  bool load(std::uint64_t address, std::span<std::byte> to, std::uint32_t* crc) noexcept override;
  bool store(std::uint64_t address, std::span<const std::byte> from, std::uint32_t* crc) noexcept override;
  bool atomic(std::uint64_t address, const transport::AtomicOperation& operation,
              std::uint64_t& original) noexcept override;
};

/// 0 when all of [address, address + length) is mapped with the rights that registration asks for: readable always,
/// writable when `writable`. EFAULT otherwise. Reads /proc/self/maps, so that no page is touched.
[[nodiscard]] int check_mapped(std::uint64_t address, std::uint64_t length, bool writable);

}  // namespace tensorwire::softhca
