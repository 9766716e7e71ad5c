// The packet memory of a switch, shared by its ports: who may take how much, and when an ingress must ask its upstream
// to pause (PFC). Accounts are kept for each ingress port and priority: a small reserve first, then the shared pool up
// to a dynamic threshold, then, on lossless priorities, headroom for what is still on its way after a pause was asked
// for. Counts bytes, holds no packets. Owned by its switch.
//
// Dynamic thresholds: Choudhury and Hahne, IEEE/ACM ToN 6(2), 1998. An ingress may hold alpha times what is left of the
// pool, so that k greedy ones settle at alpha B / (1 + k alpha) each. PFC: IEEE 802.1Qbb.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fabric/packet.hpp"

namespace tensorwire::fabric {

struct BufferConfig {
  std::uint64_t bytes = 32ULL << 20;          ///< all of it; less than kMostBytes
  int alpha_log2 = 0;                         ///< alpha = 2^alpha_log2, as `dynamic_th` of switches; -7 to 6
  std::uint64_t reserve_bytes = 4096;         ///< for each ingress port and priority
  std::uint64_t headroom_bytes = 177 * 1024;  ///< for each ingress port and lossless priority
  std::uint64_t xon_offset_bytes = 3072;      ///< an ingress goes on when it is so far below its threshold
  std::uint8_t lossless = 1U << 3;            ///< a bit for each priority
};

class SharedBuffer {
 public:
  static constexpr std::uint64_t kMostBytes = 1ULL << 32;

  SharedBuffer(const BufferConfig& config, std::uint32_t ports);

  /// Takes room for a packet. False: there is none, it is dropped.
  [[nodiscard]] bool take(std::uint32_t port, std::uint8_t priority, std::uint32_t bytes) noexcept;
  void release(std::uint32_t port, std::uint8_t priority, std::uint32_t bytes) noexcept;

  /// The upstream must be asked to pause.
  [[nodiscard]] bool wants_pause(std::uint32_t port, std::uint8_t priority) const noexcept;
  /// The upstream may go on.
  [[nodiscard]] bool may_resume(std::uint32_t port, std::uint8_t priority) const noexcept;

  /// What an ingress may hold of the pool now.
  [[nodiscard]] std::uint64_t threshold() const noexcept;
  [[nodiscard]] bool lossless(std::uint8_t priority) const noexcept { return (config_.lossless >> priority & 1) != 0; }
  [[nodiscard]] std::uint64_t used() const noexcept { return used_; }
  [[nodiscard]] const BufferConfig& config() const noexcept { return config_; }
  /// Asks for the memory that the other questions about this account read.
  void fetch(std::uint32_t port, std::uint8_t priority) const noexcept { __builtin_prefetch(&account(port, priority)); }

  /// Bytes left for the pool when reserves and headroom of so many ports are set aside; 0 when they do not fit.
  [[nodiscard]] static std::uint64_t pool_bytes(const BufferConfig& config, std::uint32_t ports) noexcept;

 private:
  struct Account {
    std::uint32_t held = 0;      ///< of reserve and pool
    std::uint32_t headroom = 0;  ///< of headroom
  };

  [[nodiscard]] Account& account(std::uint32_t port, std::uint8_t priority) noexcept {
    return accounts_[port * kPriorities + priority];
  }
  [[nodiscard]] const Account& account(std::uint32_t port, std::uint8_t priority) const noexcept {
    return accounts_[port * kPriorities + priority];
  }
  [[nodiscard]] std::uint64_t shared_of(std::uint64_t held) const noexcept {
    return held > config_.reserve_bytes ? held - config_.reserve_bytes : 0;
  }

  BufferConfig config_;
  std::uint64_t pool_;
  std::uint64_t shared_used_ = 0;
  std::uint64_t used_ = 0;
  std::vector<Account> accounts_;
};

// In the header, because every packet that waits passes here.
inline std::uint64_t SharedBuffer::threshold() const noexcept {
  const std::uint64_t left = pool_ > shared_used_ ? pool_ - shared_used_ : 0;
  return config_.alpha_log2 >= 0 ? left << config_.alpha_log2 : left >> -config_.alpha_log2;
}

inline bool SharedBuffer::take(std::uint32_t port, std::uint8_t priority, std::uint32_t bytes) noexcept {
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

inline void SharedBuffer::release(std::uint32_t port, std::uint8_t priority, std::uint32_t bytes) noexcept {
  Account& account = this->account(port, priority);
  used_ -= bytes;
  const std::uint32_t from_headroom = std::min(account.headroom, bytes);
  account.headroom -= from_headroom;
  const std::uint32_t rest = bytes - from_headroom;
  shared_used_ -= shared_of(account.held) - shared_of(account.held - rest);
  account.held -= rest;
}

inline bool SharedBuffer::wants_pause(std::uint32_t port, std::uint8_t priority) const noexcept {
  if (!lossless(priority)) return false;
  const Account& account = this->account(port, priority);
  return account.headroom != 0 || (shared_of(account.held) != 0 && shared_of(account.held) >= threshold());
}

inline bool SharedBuffer::may_resume(std::uint32_t port, std::uint8_t priority) const noexcept {
  const Account& account = this->account(port, priority);
  const std::uint64_t shared = shared_of(account.held);
  return account.headroom == 0 && (shared == 0 || shared + config_.xon_offset_bytes <= threshold());
}

}  // namespace tensorwire::fabric
