#include "wire/icrc.hpp"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "base/bytes.hpp"
#include "wire/frame.hpp"
#include "wire/headers.hpp"

namespace tensorwire::wire {

namespace {

/// Register after the 8 bytes of ones that stand for the LRH, from register ffffffff.
constexpr std::uint32_t kAfterDummyLrh = 0xdebb'20e3;

constexpr std::size_t kMaskedBthByte = 4;

void store_masked_ipv4(const Flow& flow, std::size_t ip_bytes, std::uint16_t ip_id, std::byte* p) noexcept {
  p[0] = std::byte{0x45};
  p[1] = std::byte{0xff};  // ToS
  store_be16(p + 2, static_cast<std::uint16_t>(ip_bytes));
  store_be16(p + 4, ip_id);
  store_be16(p + 6, 0x4000);   // DF
  p[8] = std::byte{0xff};      // TTL
  p[9] = std::byte{17};        // UDP
  store_be16(p + 10, 0xffff);  // header checksum
  std::memcpy(p + 12, flow.source.bytes.data() + 12, 4);
  std::memcpy(p + 16, flow.destination.bytes.data() + 12, 4);
}

void store_masked_ipv6(const Flow& flow, std::size_t payload_bytes, std::byte* p) noexcept {
  store_be32(p, 0x6fff'ffff);  // traffic class, flow label
  store_be16(p + 4, static_cast<std::uint16_t>(payload_bytes));
  p[6] = std::byte{17};    // UDP
  p[7] = std::byte{0xff};  // hop limit
  store_gid(p + 8, flow.source);
  store_gid(p + 24, flow.destination);
}

void store_masked_udp(const Flow& flow, std::size_t udp_bytes, std::byte* p) noexcept {
  store_be16(p, flow.source_port);
  store_be16(p + 2, flow.destination_port);
  store_be16(p + 4, static_cast<std::uint16_t>(udp_bytes));
  store_be16(p + 6, 0xffff);  // checksum
}

/// ISA-L's widest kernel leaves the upper halves of the vector registers dirty, and the first SSE instruction after it
/// then costs about 100 ns (measured on Sapphire Rapids): as much as the CRC of a kilobyte.
inline void clean_vector_registers() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx") != 0) {
    asm volatile("vzeroupper" ::
                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                       "xmm12", "xmm13", "xmm14", "xmm15");
  }
#endif
}

}  // namespace

std::uint32_t crc_update(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return crc;
  // ISA-L inverts the register on entry and on exit, and does not write through its non-const pointer.
  auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
  const std::uint32_t updated = ~crc32_gzip_refl(~crc, data, bytes.size());
  clean_vector_registers();
  return updated;
}

std::uint32_t icrc_begin(const Flow& flow, std::size_t udp_payload_bytes, std::uint16_t ip_id) noexcept {
  std::array<std::byte, kIpv6Bytes + kUdpBytes> masked;
  const std::size_t udp_bytes = kUdpBytes + udp_payload_bytes;
  const std::size_t ip_bytes = ip_header_bytes(flow);
  if (flow.is_ipv4()) {
    store_masked_ipv4(flow, ip_bytes + udp_bytes, ip_id, masked.data());
  } else {
    store_masked_ipv6(flow, udp_bytes, masked.data());
  }
  store_masked_udp(flow, udp_bytes, masked.data() + ip_bytes);
  return crc_update(kAfterDummyLrh, {masked.data(), ip_bytes + kUdpBytes});
}

std::uint32_t icrc_headers(std::uint32_t crc, std::span<const std::byte> header_stack) noexcept {
  assert(header_stack.size() >= kBthBytes && header_stack.size() <= kMaxHeaderBytes);
  std::array<std::byte, kMaxHeaderBytes> masked;
  const std::size_t n = std::min(header_stack.size(), masked.size());
  std::memcpy(masked.data(), header_stack.data(), n);
  masked[kMaskedBthByte] = std::byte{0xff};
  return crc_update(crc, {masked.data(), n});
}

}  // namespace tensorwire::wire
