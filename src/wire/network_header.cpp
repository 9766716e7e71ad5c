#include "wire/network_header.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "wire/frame.hpp"

namespace tensorwire::wire {

namespace {

constexpr std::size_t kIpv4At = kNetworkHeaderBytes - kIpv4Bytes;
constexpr std::uint32_t kVersion6 = 6U << 28;

}  // namespace

void encode_network_header(const NetworkHeader& header, std::size_t udp_payload_bytes,
                           std::span<std::byte, kNetworkHeaderBytes> out) noexcept {
  const FrameInfo info{.flow = {header.source, header.destination},
                       .tos = header.traffic_class,
                       .ttl = header.hop_limit,
                       .flow_label = header.flow_label};
  if (!header.source.is_ipv4() || !header.destination.is_ipv4()) {
    encode_ipv6_header(info, udp_payload_bytes, out);
    return;
  }
  std::fill_n(out.begin(), kIpv4At, std::byte{0});
  encode_ipv4_header(info, udp_payload_bytes, out.last<kIpv4Bytes>());
}

std::optional<NetworkHeader> parse_network_header(std::span<const std::byte, kNetworkHeaderBytes> bytes) noexcept {
  const std::byte* const ip = bytes.data() + kIpv4At;
  if (ip[0] == kVersion4WithoutOptions && internet_checksum({ip, kIpv4Bytes}) == 0) {
    return NetworkHeader{.source = Gid::from_ipv4(load_be32(ip + 12)),
                         .destination = Gid::from_ipv4(load_be32(ip + 16)),
                         .traffic_class = std::to_integer<std::uint8_t>(ip[1]),
                         .hop_limit = std::to_integer<std::uint8_t>(ip[8])};
  }
  const std::uint32_t first = load_be32(bytes.data());
  if (first >> 28 != kVersion6 >> 28) return std::nullopt;
  NetworkHeader header;
  header.traffic_class = static_cast<std::uint8_t>(first >> 20);
  header.hop_limit = std::to_integer<std::uint8_t>(bytes[7]);
  header.flow_label = first & kFlowLabelMask;
  header.source = load_gid(bytes.data() + 8);
  header.destination = load_gid(bytes.data() + 24);
  return header;
}

}  // namespace tensorwire::wire
