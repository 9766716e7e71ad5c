// The hello of our own HCAs: a small datagram to the peer's port 4791 when a first queue pair towards it goes to RTR.
// It tells how much the sender's receive buffer holds, so that bytes in flight stay under a share of it, and it proves
// that the peer numbers its IP identifications the way ours does (wire/icrc.hpp). An HCA that does not know it drops
// it: the opcode is in the range that the IB specification (vol. 1, table 38) leaves to manufacturers.
//
// Layout of the UDP payload, big-endian: BTH (opcode 0xC1, DestQP = receiver's slot << 16, PSN 0) | magic 4 | version 1
// | flags 1 | sharers 2 | receive buffer bytes 8 | sender's slot 1 | zero 3 | ICRC 4. A slot is a process at an address
// (process_slot.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/headers.hpp"
#include "wire/icrc.hpp"

namespace tensorwire::softhca {

inline constexpr std::byte kHelloOpcode{0xc1};
inline constexpr std::size_t kHelloBodyBytes = 20;
inline constexpr std::size_t kHelloBytes = wire::kBthBytes + kHelloBodyBytes + wire::kIcrcBytes;

struct Hello {
  bool answer_wanted = false;
  std::uint8_t sender_slot = 0;
  std::uint8_t receiver_slot = 0;
  std::uint16_t sharers = 1;               ///< how many peers share the buffer
  std::uint64_t receive_buffer_bytes = 0;  ///< as SO_RCVBUF reads back: payload and the kernel's bookkeeping

  bool operator==(const Hello&) const = default;
};

/// A whole UDP payload, ICRC included, for IP identification 0.
[[nodiscard]] std::array<std::byte, kHelloBytes> encode_hello(const Hello& hello, const wire::Flow& flow) noexcept;

/// Nothing when the bytes are no hello that this version understands or the ICRC is wrong.
[[nodiscard]] std::optional<Hello> parse_hello(std::span<const std::byte> udp_payload, const wire::Flow& flow) noexcept;

}  // namespace tensorwire::softhca
