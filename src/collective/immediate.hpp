// The 32-bit immediate of every write between ranks: 12 bits of the directed pair's sequence, 12 bits of credit (how
// many of the receiver's sequences the sender has consumed, modulo 4096), 8 bits of message number. Values are compared
// modulo their window, never absolutely.
#pragma once

#include <cstdint>

#include "collective/plan.hpp"

namespace tensorwire::collective {

inline constexpr std::uint32_t kSequenceModulus = 1U << 12;
/// The message number of a zero-length write that carries credit only; its sequence field means nothing. (That of an
/// invitation, kInvitationMessage in plan.hpp, counts the invitations of the pair.)
inline constexpr std::uint8_t kCreditMessage = 0xff;

struct Immediate {
  std::uint32_t sequence = 0;  ///< modulo kSequenceModulus
  std::uint32_t credit = 0;    ///< modulo kSequenceModulus
  std::uint8_t message = 0;

  /// Whether it is of a sequence, and not beside them all.
  [[nodiscard]] constexpr bool has_sequence() const noexcept { return message < kMaxMessages; }
  [[nodiscard]] constexpr std::uint32_t pack() const noexcept {
    return (sequence % kSequenceModulus) << 20 | (credit % kSequenceModulus) << 8 | message;
  }
  [[nodiscard]] static constexpr Immediate unpack(std::uint32_t bits) noexcept {
    return {bits >> 20, (bits >> 8) % kSequenceModulus, static_cast<std::uint8_t>(bits)};
  }
};

/// How far `later` is ahead of `earlier`, in [0, kSequenceModulus).
[[nodiscard]] constexpr std::uint32_t sequence_distance(std::uint64_t earlier, std::uint64_t later) noexcept {
  return static_cast<std::uint32_t>(later - earlier) % kSequenceModulus;
}

}  // namespace tensorwire::collective
