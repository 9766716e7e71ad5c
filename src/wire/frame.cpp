#include "wire/frame.hpp"

#include <cassert>

#include "base/bytes.hpp"

namespace tensorwire::wire {

namespace {

constexpr std::uint16_t kEtherTypeIpv4 = 0x0800;
constexpr std::uint16_t kEtherTypeVlan = 0x8100;
constexpr std::size_t kVlanTagBytes = 4;
constexpr std::size_t kEtherTypeOffset = 12;
constexpr std::byte kVersion4WithoutOptions{0x45};
constexpr std::byte kProtocolUdp{17};
constexpr std::uint16_t kDontFragment = 0x4000;
constexpr std::uint16_t kFragmentMask = 0x3fff;  // more-fragments bit and offset

/// 02:00 and the IPv4 address: a locally administered unicast address.
void store_mac(std::byte* p, std::uint32_t ipv4) noexcept {
  store_be16(p, 0x0200);
  store_be32(p + 2, ipv4);
}

}  // namespace

std::uint16_t internet_checksum(std::span<const std::byte> bytes) noexcept {
  std::uint64_t sum = 0;
  std::size_t i = 0;
  for (; i + 1 < bytes.size(); i += 2) sum += load_be16(bytes.data() + i);
  if (i < bytes.size()) sum += std::to_integer<std::uint64_t>(bytes[i]) << 8;
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

void encode_ipv4_header(const FrameInfo& info, std::size_t udp_payload_bytes,
                        std::span<std::byte, kIpv4Bytes> out) noexcept {
  assert(udp_payload_bytes <= kMaxUdpPayloadBytes);
  std::byte* const ip = out.data();
  ip[0] = kVersion4WithoutOptions;
  ip[1] = static_cast<std::byte>(info.tos);
  store_be16(ip + 2, static_cast<std::uint16_t>(kIpv4Bytes + kUdpBytes + udp_payload_bytes));
  store_be16(ip + 4, info.ip_id);
  store_be16(ip + 6, kDontFragment);
  ip[8] = static_cast<std::byte>(info.ttl);
  ip[9] = kProtocolUdp;
  store_be16(ip + 10, 0);  // the checksum counts itself as zero
  store_be32(ip + 12, info.flow.source);
  store_be32(ip + 16, info.flow.destination);
  store_be16(ip + 10, internet_checksum(out));
}

void encode_frame_headers(const FrameInfo& info, std::size_t udp_payload_bytes,
                          std::span<std::byte, kFrameHeaderBytes> out) noexcept {
  std::byte* ethernet = out.data();
  store_mac(ethernet, info.flow.destination);
  store_mac(ethernet + 6, info.flow.source);
  store_be16(ethernet + kEtherTypeOffset, kEtherTypeIpv4);
  encode_ipv4_header(info, udp_payload_bytes, out.subspan<kEthernetBytes, kIpv4Bytes>());

  std::byte* udp = ethernet + kEthernetBytes + kIpv4Bytes;
  store_be16(udp, info.flow.source_port);
  store_be16(udp + 2, info.flow.destination_port);
  store_be16(udp + 4, static_cast<std::uint16_t>(kUdpBytes + udp_payload_bytes));
  store_be16(udp + 6, 0);  // "no checksum": RFC 768
}

std::optional<ParsedFrame> parse_frame(std::span<const std::byte> frame) noexcept {
  if (frame.size() < kEthernetBytes) return std::nullopt;
  std::size_t ip_offset = kEthernetBytes;
  std::uint16_t ether_type = load_be16(frame.data() + kEtherTypeOffset);
  if (ether_type == kEtherTypeVlan) {
    ip_offset += kVlanTagBytes;
    if (frame.size() < ip_offset) return std::nullopt;
    ether_type = load_be16(frame.data() + kEtherTypeOffset + kVlanTagBytes);
  }
  if (ether_type != kEtherTypeIpv4 || frame.size() < ip_offset + kIpv4Bytes + kUdpBytes) return std::nullopt;

  const std::byte* ip = frame.data() + ip_offset;
  if (ip[0] != kVersion4WithoutOptions || ip[9] != kProtocolUdp) return std::nullopt;
  if ((load_be16(ip + 6) & kFragmentMask) != 0) return std::nullopt;
  const std::size_t ip_bytes = load_be16(ip + 2);  // less than the frame where Ethernet padded it
  if (ip_bytes < kIpv4Bytes + kUdpBytes || ip_bytes > frame.size() - ip_offset) return std::nullopt;

  const std::byte* udp = ip + kIpv4Bytes;
  const std::size_t udp_bytes = load_be16(udp + 4);
  if (udp_bytes < kUdpBytes || udp_bytes > ip_bytes - kIpv4Bytes) return std::nullopt;

  ParsedFrame parsed;
  parsed.info.flow = {.source = load_be32(ip + 12),
                      .destination = load_be32(ip + 16),
                      .source_port = load_be16(udp),
                      .destination_port = load_be16(udp + 2)};
  parsed.info.tos = std::to_integer<std::uint8_t>(ip[1]);
  parsed.info.ttl = std::to_integer<std::uint8_t>(ip[8]);
  parsed.info.ip_id = load_be16(ip + 4);
  parsed.udp_payload = {udp + kUdpBytes, udp_bytes - kUdpBytes};
  return parsed;
}

}  // namespace tensorwire::wire
