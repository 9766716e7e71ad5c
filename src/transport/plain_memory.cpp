#include "transport/plain_memory.hpp"

#include <cstring>

#include "wire/icrc.hpp"

namespace tensorwire::transport {

bool PlainMemory::load(std::uint64_t address, std::span<std::byte> to, std::uint32_t* crc) noexcept {
  std::memcpy(to.data(), reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address)), to.size());
  if (crc != nullptr) *crc = wire::crc_update(*crc, to);
  return true;
}

bool PlainMemory::store(std::uint64_t address, std::span<const std::byte> from, std::uint32_t* crc) noexcept {
  std::memcpy(reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)), from.data(), from.size());
  if (crc != nullptr) *crc = wire::crc_update(*crc, from);
  return true;
}

bool PlainMemory::atomic(std::uint64_t address, const AtomicOperation& operation, std::uint64_t& original) noexcept {
  original = apply_atomic(*reinterpret_cast<std::uint64_t*>(static_cast<std::uintptr_t>(address)), operation);
  return true;
}

}  // namespace tensorwire::transport
