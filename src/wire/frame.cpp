#include "wire/frame.hpp"

#include <cassert>
#include <cstring>

#include "base/bytes.hpp"

namespace tensorwire::wire {

namespace {

constexpr std::uint16_t kEtherTypeIpv4 = 0x0800;
constexpr std::uint16_t kEtherTypeIpv6 = 0x86dd;
constexpr std::uint16_t kEtherTypeVlan = 0x8100;
constexpr std::size_t kVlanTagBytes = 4;
constexpr std::size_t kEtherTypeOffset = 12;
constexpr std::byte kProtocolUdp{17};
constexpr std::uint16_t kDontFragment = 0x4000;
constexpr std::uint16_t kFragmentMask = 0x3fff;  // more-fragments bit and offset

/// 02:00 (IPv6: 02:06) and the last four bytes of the address: a locally administered unicast address.
void store_mac(std::byte* p, const Gid& gid) noexcept {
  store_be16(p, gid.is_ipv4() ? 0x0200 : 0x0206);
  std::memcpy(p + 2, gid.bytes.data() + 12, 4);
}

/// What the 16-bit words add up to, carries not yet folded in.
std::uint64_t sum_of_words(std::span<const std::byte> bytes) noexcept {
  std::uint64_t sum = 0;
  std::size_t i = 0;
  for (; i + 1 < bytes.size(); i += 2) sum += load_be16(bytes.data() + i);
  if (i < bytes.size()) sum += std::to_integer<std::uint64_t>(bytes[i]) << 8;
  return sum;
}

/// RFC 8200 section 8.1: addresses, length and protocol are summed too; a sum of zero is written as ones.
std::uint16_t udp_checksum_ipv6(const std::byte* ip, const std::byte* udp,
                                std::span<const std::byte> payload) noexcept {
  const std::uint64_t pseudo =
      sum_of_words({ip + 8, 32}) + kUdpBytes + payload.size() + std::to_integer<std::uint64_t>(kProtocolUdp);
  const std::uint16_t checksum = internet_checksum(payload, pseudo + sum_of_words({udp, kUdpBytes}));
  return checksum == 0 ? 0xffff : checksum;
}

/// Fills addresses, ToS and TTL; returns the bytes of the UDP datagram, or nothing.
std::optional<std::span<const std::byte>> parse_ipv4(std::span<const std::byte> ip, FrameInfo& info) noexcept {
  if (ip.size() < kIpv4Bytes + kUdpBytes || ip[0] != kVersion4WithoutOptions || ip[9] != kProtocolUdp) {
    return std::nullopt;
  }
  if ((load_be16(&ip[6]) & kFragmentMask) != 0) return std::nullopt;
  const std::size_t ip_bytes = load_be16(&ip[2]);  // less than the frame where Ethernet padded it
  if (ip_bytes < kIpv4Bytes + kUdpBytes || ip_bytes > ip.size()) return std::nullopt;
  info.flow.source = Gid::from_ipv4(load_be32(&ip[12]));
  info.flow.destination = Gid::from_ipv4(load_be32(&ip[16]));
  info.tos = std::to_integer<std::uint8_t>(ip[1]);
  info.ttl = std::to_integer<std::uint8_t>(ip[8]);
  info.ip_id = load_be16(&ip[4]);
  return ip.subspan(kIpv4Bytes, ip_bytes - kIpv4Bytes);
}

std::optional<std::span<const std::byte>> parse_ipv6(std::span<const std::byte> ip, FrameInfo& info) noexcept {
  if (ip.size() < kIpv6Bytes + kUdpBytes || std::to_integer<unsigned>(ip[0]) >> 4 != 6 || ip[6] != kProtocolUdp) {
    return std::nullopt;
  }
  const std::size_t payload_bytes = load_be16(&ip[4]);
  if (payload_bytes < kUdpBytes || payload_bytes > ip.size() - kIpv6Bytes) return std::nullopt;
  info.flow.source = load_gid(&ip[8]);
  info.flow.destination = load_gid(&ip[24]);
  const std::uint32_t first = load_be32(&ip[0]);
  info.tos = static_cast<std::uint8_t>(first >> 20);
  info.flow_label = first & kFlowLabelMask;
  info.ttl = std::to_integer<std::uint8_t>(ip[7]);
  return ip.subspan(kIpv6Bytes, payload_bytes);
}

}  // namespace

std::uint16_t internet_checksum(std::span<const std::byte> bytes, std::uint64_t sum) noexcept {
  sum += sum_of_words(bytes);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

void encode_ipv4_header(const FrameInfo& info, std::size_t udp_payload_bytes,
                        std::span<std::byte, kIpv4Bytes> out) noexcept {
  std::byte* const ip = out.data();
  ip[0] = kVersion4WithoutOptions;
  ip[1] = static_cast<std::byte>(info.tos);
  store_be16(ip + 2, static_cast<std::uint16_t>(kIpv4Bytes + kUdpBytes + udp_payload_bytes));
  store_be16(ip + 4, info.ip_id);
  store_be16(ip + 6, kDontFragment);
  ip[8] = static_cast<std::byte>(info.ttl);
  ip[9] = kProtocolUdp;
  store_be16(ip + 10, 0);  // the checksum counts itself as zero
  store_be32(ip + 12, info.flow.source.ipv4());
  store_be32(ip + 16, info.flow.destination.ipv4());
  store_be16(ip + 10, internet_checksum(out));
}

void encode_ipv6_header(const FrameInfo& info, std::size_t udp_payload_bytes,
                        std::span<std::byte, kIpv6Bytes> out) noexcept {
  std::byte* const ip = out.data();
  store_be32(ip, 6U << 28 | std::uint32_t{info.tos} << 20 | (info.flow_label & kFlowLabelMask));
  store_be16(ip + 4, static_cast<std::uint16_t>(kUdpBytes + udp_payload_bytes));
  ip[6] = kProtocolUdp;
  ip[7] = static_cast<std::byte>(info.ttl);
  store_gid(ip + 8, info.flow.source);
  store_gid(ip + 24, info.flow.destination);
}

std::size_t encode_frame_headers(const FrameInfo& info, std::span<const std::byte> udp_payload,
                                 std::span<std::byte, kMaxFrameHeaderBytes> out) noexcept {
  assert(udp_payload.size() <= kMaxUdpPayloadBytes);
  const bool ipv4 = info.flow.is_ipv4();
  std::byte* ethernet = out.data();
  store_mac(ethernet, info.flow.destination);
  store_mac(ethernet + 6, info.flow.source);
  store_be16(ethernet + kEtherTypeOffset, ipv4 ? kEtherTypeIpv4 : kEtherTypeIpv6);

  const std::size_t udp_bytes = kUdpBytes + udp_payload.size();
  std::byte* ip = ethernet + kEthernetBytes;
  std::byte* udp = ip + ip_header_bytes(info.flow);
  store_be16(udp, info.flow.source_port);
  store_be16(udp + 2, info.flow.destination_port);
  store_be16(udp + 4, static_cast<std::uint16_t>(udp_bytes));
  store_be16(udp + 6, 0);
  if (ipv4) {
    encode_ipv4_header(info, udp_payload.size(), out.subspan<kEthernetBytes, kIpv4Bytes>());
  } else {
    encode_ipv6_header(info, udp_payload.size(), out.subspan<kEthernetBytes, kIpv6Bytes>());
    store_be16(udp + 6, udp_checksum_ipv6(ip, udp, udp_payload));
  }
  return static_cast<std::size_t>(udp + kUdpBytes - ethernet);
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
  if (ether_type != kEtherTypeIpv4 && ether_type != kEtherTypeIpv6) return std::nullopt;

  ParsedFrame parsed;
  const std::span<const std::byte> ip = frame.subspan(ip_offset);
  const auto udp = ether_type == kEtherTypeIpv4 ? parse_ipv4(ip, parsed.info) : parse_ipv6(ip, parsed.info);
  if (!udp) return std::nullopt;
  const std::size_t udp_bytes = load_be16(&(*udp)[4]);
  if (udp_bytes < kUdpBytes || udp_bytes > udp->size()) return std::nullopt;
  parsed.info.flow.source_port = load_be16(&(*udp)[0]);
  parsed.info.flow.destination_port = load_be16(&(*udp)[2]);
  parsed.udp_payload = udp->subspan(kUdpBytes, udp_bytes - kUdpBytes);
  return parsed;
}

}  // namespace tensorwire::wire
