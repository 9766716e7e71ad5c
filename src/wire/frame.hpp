// Ethernet II / IPv4 or IPv6 / UDP framing around a RoCEv2 datagram, for captures and for tests: sockets build these
// headers themselves.
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

inline constexpr std::uint32_t kFlowLabelMask = 0xf'ffff;

inline constexpr std::size_t kEthernetBytes = 14;
inline constexpr std::size_t kIpv4Bytes = 20;
inline constexpr std::size_t kIpv6Bytes = 40;
/// The first byte of an IPv4 header of kIpv4Bytes.
inline constexpr std::byte kVersion4WithoutOptions{0x45};
inline constexpr std::size_t kUdpBytes = 8;
inline constexpr std::size_t kMaxFrameHeaderBytes = kEthernetBytes + kIpv6Bytes + kUdpBytes;
/// What the 16-bit IPv4 length leaves.
inline constexpr std::size_t kMaxUdpPayloadBytes = 65'535 - kIpv4Bytes - kUdpBytes;

[[nodiscard]] constexpr std::size_t ip_header_bytes(const Flow& flow) noexcept {
  return flow.is_ipv4() ? kIpv4Bytes : kIpv6Bytes;
}

struct FrameInfo {
  Flow flow;
  std::uint8_t tos = 0;          ///< IPv4 type of service, IPv6 traffic class: DSCP << 2 | ECN
  std::uint8_t ttl = 64;         ///< IPv6: hop limit
  std::uint16_t ip_id = 0;       ///< IPv4 only
  std::uint32_t flow_label = 0;  ///< IPv6 only, 20 bits
};

/// Writes the IPv4 header (DF, right checksum) of a UDP datagram of `udp_payload_bytes`, at most kMaxUdpPayloadBytes.
void encode_ipv4_header(const FrameInfo& info, std::size_t udp_payload_bytes,
                        std::span<std::byte, kIpv4Bytes> out) noexcept;
/// The same in IPv6.
void encode_ipv6_header(const FrameInfo& info, std::size_t udp_payload_bytes,
                        std::span<std::byte, kIpv6Bytes> out) noexcept;

/// Writes Ethernet (locally administered addresses made from the IP addresses), IPv4 or IPv6, and UDP headers for
/// `udp_payload`, at most kMaxUdpPayloadBytes, and returns their length. The UDP checksum is 0 in IPv4 ("none", RFC
/// 768) and right in IPv6, which has no other one.
std::size_t encode_frame_headers(const FrameInfo& info, std::span<const std::byte> udp_payload,
                                 std::span<std::byte, kMaxFrameHeaderBytes> out) noexcept;

struct ParsedFrame {
  FrameInfo info;
  std::span<const std::byte> udp_payload;
};

/// Parses an Ethernet frame (one VLAN tag allowed) that carries UDP in IPv4 without options or in IPv6 without
/// extension headers; nothing for anything else or a truncated one.
[[nodiscard]] std::optional<ParsedFrame> parse_frame(std::span<const std::byte> frame) noexcept;

/// RFC 1071 checksum, as stored in the IPv4 header. `sum` is what other bytes of an even count have added up to.
[[nodiscard]] std::uint16_t internet_checksum(std::span<const std::byte> bytes, std::uint64_t sum = 0) noexcept;

}  // namespace tensorwire::wire
