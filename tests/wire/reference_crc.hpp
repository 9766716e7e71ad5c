// The ICRC again, written from the specification alone and bit by bit: the oracle for the fast one. It shares no code
// with src/wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tensorwire::wire::testing {

/// CRC-32 register (not inverted) after `bytes`, one bit at a time.
inline std::uint32_t reference_crc(std::uint32_t crc, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0xedb88320U : crc >> 1;
  }
  return crc;
}

/// ICRC of a whole packet (IP header first) without its last 4 bytes, masked as annex A17 says.
inline std::uint32_t reference_icrc(std::vector<std::byte> packet) {
  const bool ipv6 = std::to_integer<unsigned>(packet.at(0)) >> 4 == 6;
  const std::size_t udp = ipv6 ? 40 : 20;
  std::vector<std::size_t> changeable{udp + 6, udp + 7, udp + 8 + 4};  // UDP checksum, FECN/BECN/reserved
  if (ipv6) {
    packet[0] |= std::byte{0x0f};                           // traffic class, flow label
    changeable.insert(changeable.end(), {1U, 2U, 3U, 7U});  // and hop limit
  } else {
    changeable.insert(changeable.end(), {1U, 8U, 10U, 11U});  // ToS, TTL, header checksum
  }
  for (const std::size_t at : changeable) packet.at(at) = std::byte{0xff};
  packet.insert(packet.begin(), 8, std::byte{0xff});
  return ~reference_crc(0xffffffffU, packet);
}

}  // namespace tensorwire::wire::testing
