#include "fabric/shared_buffer.hpp"

#include <algorithm>
#include <bit>

namespace tensorwire::fabric {

SharedBuffer::SharedBuffer(const BufferConfig& config, std::uint32_t ports)
    : config_(config), pool_(pool_bytes(config, ports)), accounts_(std::size_t{ports} * kPriorities) {}

std::uint64_t SharedBuffer::pool_bytes(const BufferConfig& config, std::uint32_t ports) noexcept {
  const auto lossless = static_cast<std::uint64_t>(std::popcount(config.lossless));
  const std::uint64_t aside = ports * (kPriorities * config.reserve_bytes + lossless * config.headroom_bytes);
  return config.bytes > aside ? config.bytes - aside : 0;
}

std::uint64_t SharedBuffer::threshold() const noexcept {
  const std::uint64_t left = pool_ > shared_used_ ? pool_ - shared_used_ : 0;
  return config_.alpha_log2 >= 0 ? left << config_.alpha_log2 : left >> -config_.alpha_log2;
}

bool SharedBuffer::take(std::uint32_t port, std::uint8_t priority, std::uint32_t bytes) noexcept {
  Account& account = this->account(port, priority);
  const std::uint64_t before = shared_of(account.held);
  const std::uint64_t after = shared_of(std::uint64_t{account.held} + bytes);
  // From the first byte of headroom on, everything goes there: the upstream is about to stop.
  const bool within = account.headroom == 0 && (after == 0 || after <= threshold());
  if (within) {
    account.held += bytes;
    shared_used_ += after - before;
  } else {
    if (!lossless(priority) || account.headroom + bytes > config_.headroom_bytes) return false;
    account.headroom += bytes;
  }
  used_ += bytes;
  return true;
}

void SharedBuffer::release(std::uint32_t port, std::uint8_t priority, std::uint32_t bytes) noexcept {
  Account& account = this->account(port, priority);
  used_ -= bytes;
  const std::uint32_t from_headroom = std::min(account.headroom, bytes);
  account.headroom -= from_headroom;
  const std::uint32_t rest = bytes - from_headroom;
  shared_used_ -= shared_of(account.held) - shared_of(account.held - rest);
  account.held -= rest;
}

bool SharedBuffer::wants_pause(std::uint32_t port, std::uint8_t priority) const noexcept {
  if (!lossless(priority)) return false;
  const Account& account = this->account(port, priority);
  return account.headroom != 0 || (shared_of(account.held) != 0 && shared_of(account.held) >= threshold());
}

bool SharedBuffer::may_resume(std::uint32_t port, std::uint8_t priority) const noexcept {
  const Account& account = this->account(port, priority);
  const std::uint64_t shared = shared_of(account.held);
  return account.headroom == 0 && (shared == 0 || shared + config_.xon_offset_bytes <= threshold());
}

}  // namespace tensorwire::fabric
