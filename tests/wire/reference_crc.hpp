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

/// ICRC of a whole IPv4 packet (IP header first) without its last 4 bytes, masked as annex A17 says.
inline std::uint32_t reference_icrc(std::vector<std::byte> packet) {
  constexpr std::size_t kUdp = 20;
  constexpr std::size_t kBth = 28;
  for (const std::size_t at :
       {std::size_t{1}, std::size_t{8}, std::size_t{10}, std::size_t{11}, kUdp + 6, kUdp + 7, kBth + 4}) {
    packet.at(at) = std::byte{0xff};
  }
  packet.insert(packet.begin(), 8, std::byte{0xff});
  return ~reference_crc(0xffffffffU, packet);
}

}  // namespace tensorwire::wire::testing
