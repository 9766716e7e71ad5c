#include "fabric/shared_buffer.hpp"

#include <bit>

namespace tensorwire::fabric {

SharedBuffer::SharedBuffer(const BufferConfig& config, std::uint32_t ports)
    : config_(config), pool_(pool_bytes(config, ports)), accounts_(std::size_t{ports} * kPriorities) {}

std::uint64_t SharedBuffer::pool_bytes(const BufferConfig& config, std::uint32_t ports) noexcept {
  const auto lossless = static_cast<std::uint64_t>(std::popcount(config.lossless));
  const std::uint64_t aside = ports * (kPriorities * config.reserve_bytes + lossless * config.headroom_bytes);
  return config.bytes > aside ? config.bytes - aside : 0;
}

}  // namespace tensorwire::fabric
