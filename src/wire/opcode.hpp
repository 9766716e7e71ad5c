// BTH opcodes of the RC, UC and UD transports and the RoCEv2 CNP (IB specification vol. 1, table 38; RoCEv2 annex A17),
// and what each packet carries. One table: everything else asks it.
#pragma once

#include <cstdint>
#include <string_view>

namespace tensorwire::wire {

enum class Opcode : std::uint8_t {
  kRcSendFirst = 0x00,
  kRcSendMiddle = 0x01,
  kRcSendLast = 0x02,
  kRcSendLastImm = 0x03,
  kRcSendOnly = 0x04,
  kRcSendOnlyImm = 0x05,
  kRcWriteFirst = 0x06,
  kRcWriteMiddle = 0x07,
  kRcWriteLast = 0x08,
  kRcWriteLastImm = 0x09,
  kRcWriteOnly = 0x0a,
  kRcWriteOnlyImm = 0x0b,
  kRcReadRequest = 0x0c,
  kRcReadResponseFirst = 0x0d,
  kRcReadResponseMiddle = 0x0e,
  kRcReadResponseLast = 0x0f,
  kRcReadResponseOnly = 0x10,
  kRcAck = 0x11,
  kRcAtomicAck = 0x12,
  kRcCompareSwap = 0x13,
  kRcFetchAdd = 0x14,
  kRcSendLastInvalidate = 0x16,
  kRcSendOnlyInvalidate = 0x17,
  kUcSendFirst = 0x20,
  kUcSendMiddle = 0x21,
  kUcSendLast = 0x22,
  kUcSendLastImm = 0x23,
  kUcSendOnly = 0x24,
  kUcSendOnlyImm = 0x25,
  kUcWriteFirst = 0x26,
  kUcWriteMiddle = 0x27,
  kUcWriteLast = 0x28,
  kUcWriteLastImm = 0x29,
  kUcWriteOnly = 0x2a,
  kUcWriteOnlyImm = 0x2b,
  kUdSendOnly = 0x64,
  kUdSendOnlyImm = 0x65,
  kCnp = 0x81,
};

/// The transport service that a packet belongs to: the high three bits of its opcode.
enum class Service : std::uint8_t { kRc = 0, kUc = 1, kUd = 3, kCongestion = 4 };
[[nodiscard]] constexpr Service service_of(Opcode opcode) noexcept {
  return static_cast<Service>(static_cast<std::uint8_t>(opcode) >> 5);
}
/// The UC opcode of the SEND or WRITE packet that this RC opcode is.
[[nodiscard]] constexpr Opcode unreliable(Opcode rc_opcode) noexcept {
  return static_cast<Opcode>(static_cast<std::uint8_t>(rc_opcode) | static_cast<std::uint8_t>(Service::kUc) << 5);
}

/// Where a packet stands in its message.
enum class Position : std::uint8_t { kFirst, kMiddle, kLast, kOnly };

/// What a packet with this opcode is and carries. `known` is false for every byte that is not an Opcode above.
struct OpcodeTraits {
  bool known = false;
  Position position = Position::kOnly;
  bool send = false;      ///< SEND of any kind
  bool write = false;     ///< RDMA WRITE of any kind
  bool fetch = false;     ///< READ request or atomic: asks for an answer that carries data
  bool response = false;  ///< ACK, atomic ACK, READ response: travels towards the requester
  bool payload = false;   ///< may carry payload bytes
  bool reth = false;
  bool atomic_eth = false;
  bool aeth = false;
  bool atomic_ack_eth = false;
  bool immediate = false;
  bool invalidate = false;
  bool deth = false;

  /// First or Only: nothing of its message came before.
  [[nodiscard]] constexpr bool begins() const noexcept {
    return position == Position::kFirst || position == Position::kOnly;
  }
  /// Last or Only.
  [[nodiscard]] constexpr bool ends() const noexcept {
    return position == Position::kLast || position == Position::kOnly;
  }
};

[[nodiscard]] const OpcodeTraits& traits(Opcode opcode) noexcept;
[[nodiscard]] const OpcodeTraits& traits(std::uint8_t opcode_byte) noexcept;

/// "RC RDMA WRITE Last with Immediate", as protocol analysers print it.
[[nodiscard]] std::string_view name(Opcode opcode) noexcept;

}  // namespace tensorwire::wire
