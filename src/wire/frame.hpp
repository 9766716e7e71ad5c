// Ethernet II / IPv4 / UDP framing around a RoCEv2 datagram, for captures and for tests: sockets build these headers
// themselves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/icrc.hpp"

namespace tensorwire::wire {

// The low two bits of the IP ToS byte (RFC 3168).
inline constexpr std::uint8_t kEcnMask = 0x3;
inline constexpr std::uint8_t kEcnCapable = 0x2;  ///< ECT(0)
inline constexpr std::uint8_t kEcnCongestionExperienced = 0x3;

inline constexpr std::size_t kEthernetBytes = 14;
inline constexpr std::size_t kIpv4Bytes = 20;
inline constexpr std::size_t kUdpBytes = 8;
inline constexpr std::size_t kFrameHeaderBytes = kEthernetBytes + kIpv4Bytes + kUdpBytes;
/// What the 16-bit IPv4 length leaves.
inline constexpr std::size_t kMaxUdpPayloadBytes = 65'535 - kIpv4Bytes - kUdpBytes;

struct FrameInfo {
  Ipv4Flow flow;
  std::uint8_t tos = 0;  ///< DSCP << 2 | ECN
  std::uint8_t ttl = 64;
  std::uint16_t ip_id = 0;
};

/// Writes the IPv4 header (DF, right checksum) of a UDP datagram of `udp_payload_bytes`, at most kMaxUdpPayloadBytes.
void encode_ipv4_header(const FrameInfo& info, std::size_t udp_payload_bytes,
                        std::span<std::byte, kIpv4Bytes> out) noexcept;

/// Writes Ethernet (locally administered addresses made from the IPv4 addresses), IPv4 and UDP (checksum 0)
/// headers for a UDP payload of `udp_payload_bytes`, at most kMaxUdpPayloadBytes.
void encode_frame_headers(const FrameInfo& info, std::size_t udp_payload_bytes,
                          std::span<std::byte, kFrameHeaderBytes> out) noexcept;

struct ParsedFrame {
  FrameInfo info;
  std::span<const std::byte> udp_payload;
};

/// Parses an Ethernet frame (one VLAN tag allowed) that carries IPv4/UDP; nothing for anything else or a truncated one.
[[nodiscard]] std::optional<ParsedFrame> parse_frame(std::span<const std::byte> frame) noexcept;

/// RFC 1071 checksum, as stored in the IPv4 header.
[[nodiscard]] std::uint16_t internet_checksum(std::span<const std::byte> bytes) noexcept;

}  // namespace tensorwire::wire
