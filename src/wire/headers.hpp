// The transport headers of one RoCEv2 packet as a plain struct, and the explicit functions that turn it into bytes
// and back. A UDP payload is: BTH | extension headers | payload | pad | ICRC (4 bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "wire/opcode.hpp"

namespace tensorwire::wire {

inline constexpr std::uint16_t kRoceUdpPort = 4791;
inline constexpr std::uint16_t kDefaultPkey = 0xffff;
inline constexpr std::size_t kBthBytes = 12;
inline constexpr std::size_t kRethBytes = 16;
inline constexpr std::size_t kAtomicEthBytes = 28;
inline constexpr std::size_t kAethBytes = 4;
inline constexpr std::size_t kAtomicAckEthBytes = 8;
inline constexpr std::size_t kImmediateBytes = 4;
inline constexpr std::size_t kInvalidateBytes = 4;
inline constexpr std::size_t kDethBytes = 8;
inline constexpr std::size_t kIcrcBytes = 4;
inline constexpr std::size_t kCnpPayloadBytes = 16;
/// BTH + AtomicETH is the longest header stack of the opcodes we know.
inline constexpr std::size_t kMaxHeaderBytes = kBthBytes + kAtomicEthBytes;
inline constexpr std::uint32_t kPsnMask = 0xff'ffff;
inline constexpr std::uint32_t kQpnMask = 0xff'ffff;

/// Fields in host byte order. A field outside the opcode's header stack (see OpcodeTraits) is ignored by encode() and
/// left at its default by parse().
struct Headers {
  Opcode opcode = Opcode::kRcAck;
  bool solicited = false;
  bool mig_req = false;
  bool fecn = false;
  bool becn = false;
  bool ack_req = false;
  std::uint8_t pad = 0;  ///< 0..3 bytes after the payload; encode() writes it as given
  std::uint16_t pkey = kDefaultPkey;
  std::uint32_t dest_qpn = 0;  ///< 24 bits
  std::uint32_t psn = 0;       ///< 24 bits

  std::uint64_t va = 0;               ///< RETH, AtomicETH
  std::uint32_t rkey = 0;             ///< RETH, AtomicETH
  std::uint32_t dma_length = 0;       ///< RETH, bytes of the whole message
  std::uint32_t immediate = 0;        ///< ImmDt
  std::uint8_t syndrome = 0;          ///< AETH
  std::uint32_t msn = 0;              ///< AETH, 24 bits
  std::uint64_t swap_add = 0;         ///< AtomicETH
  std::uint64_t compare = 0;          ///< AtomicETH
  std::uint64_t original = 0;         ///< AtomicAckETH
  std::uint32_t invalidate_rkey = 0;  ///< IETH
  std::uint32_t qkey = 0;             ///< DETH
  std::uint32_t src_qpn = 0;          ///< DETH, 24 bits

  bool operator==(const Headers&) const = default;
};

/// Bytes of BTH plus extension headers for this opcode; 12 for an unknown one.
[[nodiscard]] std::size_t header_bytes(Opcode opcode) noexcept;

/// Writes the header stack to `out` (at least header_bytes(h.opcode) long) and returns its length.
std::size_t encode(const Headers& h, std::span<std::byte> out) noexcept;

enum class ParseStatus : std::uint8_t {
  kOk,
  kTooShort,  ///< less than headers + pad + ICRC
  kUnknownOpcode,
  kBadVersion,  ///< BTH TVer is not 0
  kBadPad,      ///< pad longer than the payload, or on a packet without payload
  kBadLength,   ///< payload on an opcode that carries none, or a length not divisible by 4
};
[[nodiscard]] std::string_view name(ParseStatus status) noexcept;

struct Parsed {
  Headers headers;
  std::size_t header_bytes = 0;   ///< payload starts here
  std::size_t payload_bytes = 0;  ///< without pad and ICRC
};

/// Parses one UDP payload (ICRC included, not verified here). Trusts no length.
[[nodiscard]] ParseStatus parse(std::span<const std::byte> udp_payload, Parsed& out) noexcept;

/// Distance a - b in the circle of 2^24, in [-2^23, 2^23).
[[nodiscard]] constexpr std::int32_t psn_diff(std::uint32_t a, std::uint32_t b) noexcept {
  return static_cast<std::int32_t>((a - b) << 8) >> 8;
}
[[nodiscard]] constexpr std::uint32_t psn_add(std::uint32_t psn, std::uint32_t n) noexcept {
  return (psn + n) & kPsnMask;
}

// AETH syndromes (IB specification 9.7.5.1.1): three bits of kind, five of value.
inline constexpr std::uint8_t kSyndromeAck = 0x00;     ///< | credit count code
inline constexpr std::uint8_t kSyndromeRnrNak = 0x20;  ///< | RNR timer code
inline constexpr std::uint8_t kSyndromeNak = 0x60;     ///< | NakCode
inline constexpr std::uint8_t kSyndromeKindMask = 0xe0;
inline constexpr std::uint8_t kSyndromeValueMask = 0x1f;
inline constexpr std::uint8_t kCreditsInvalid = 0x1f;  ///< "no end-to-end credits"
enum class NakCode : std::uint8_t {
  kPsnSequence = 0,
  kInvalidRequest = 1,
  kRemoteAccess = 2,
  kRemoteOperational = 3,
  kInvalidRdRequest = 4
};

}  // namespace tensorwire::wire
