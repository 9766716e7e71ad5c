// The 40 bytes that stand in front of a received datagram (UD) in its receive buffer: where InfiniBand has its global
// route header, RoCEv2 has the packet's IP header. An IPv6 header fills the 40 bytes; an IPv4 header stands in the last
// 20 of them, behind zeros (RoCEv2 annex A17; Linux calls it rdma_network_hdr).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/gid.hpp"

namespace tensorwire::wire {

inline constexpr std::size_t kNetworkHeaderBytes = 40;

struct NetworkHeader {
  Gid source;
  Gid destination;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;  ///< IPv6 only, 20 bits
};

/// `udp_payload_bytes`: from BTH to ICRC. IPv4 when both addresses are, else IPv6.
void encode_network_header(const NetworkHeader& header, std::size_t udp_payload_bytes,
                           std::span<std::byte, kNetworkHeaderBytes> out) noexcept;

/// Nothing when the bytes are neither an IPv4 header with a right checksum at 20, nor an IPv6 header.
[[nodiscard]] std::optional<NetworkHeader> parse_network_header(
    std::span<const std::byte, kNetworkHeaderBytes> bytes) noexcept;

}  // namespace tensorwire::wire
