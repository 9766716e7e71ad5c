// The invariant CRC of RoCEv2 (annex A17): CRC-32 (reflected 0x04C11DB7) over 8 bytes of ones, the IP, UDP and IB
// headers with the fields that routers may change set to ones, the payload and the pad; stored little-endian. The CRC
// of bytes is ISA-L's. The IPv4 identification is covered: see icrc_shift_id(). IPv6 has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/gid.hpp"

namespace tensorwire::wire {

/// What the ICRC needs to know of the IP and UDP headers around a packet. Both addresses are of one family: IPv4-mapped
/// ones make an IPv4 header.
struct Flow {
  Gid source;
  Gid destination;
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;

  [[nodiscard]] constexpr bool is_ipv4() const noexcept { return destination.is_ipv4(); }
  bool operator==(const Flow&) const = default;
};

/// A Flow of IPv4 addresses in host byte order.
[[nodiscard]] constexpr Flow ipv4_flow(std::uint32_t source, std::uint32_t destination, std::uint16_t source_port,
                                       std::uint16_t destination_port) noexcept {
  return {Gid::from_ipv4(source), Gid::from_ipv4(destination), source_port, destination_port};
}

/// CRC register (not inverted) after `bytes`, starting from register `crc`.
[[nodiscard]] std::uint32_t crc_update(std::uint32_t crc, std::span<const std::byte> bytes) noexcept;

/// Copies `from` to `to` and returns the CRC register after the bytes. The last 8 bytes become visible (release) after
/// all earlier ones, so a consumer may poll the end of a message. `from` must not change meanwhile: it is read twice.
[[nodiscard]] std::uint32_t crc_copy(std::uint32_t crc, std::byte* to, std::span<const std::byte> from) noexcept;

/// Register after 8 bytes of ones and the masked IPv4 (DF set, no options) or IPv6 (no extension headers) and UDP
/// headers. `udp_payload_bytes` includes the ICRC. `ip_id` is the IPv4 identification, which the ICRC covers; IPv6 has
/// none.
[[nodiscard]] std::uint32_t icrc_begin(const Flow& flow, std::size_t udp_payload_bytes, std::uint16_t ip_id) noexcept;

/// icrc_begin() for identification `ip_id` from the register for identification 0 of the same flow and length: CRC is
/// linear, so this is a table look-up and not a second pass over the headers. `tail_bytes` is how many bytes followed
/// the IP identification field up to the point where `crc` stands.
[[nodiscard]] std::uint32_t icrc_shift_id(std::uint32_t crc, std::uint16_t ip_id, std::size_t tail_bytes) noexcept;

/// icrc_begin() of packets that follow each other: those of one flow and length differ in the identification alone, so
/// only the first of them is computed.
class IcrcRun {
 public:
  [[nodiscard]] std::uint32_t begin(const Flow& flow, std::size_t udp_payload_bytes, std::uint16_t ip_id) noexcept;

 private:
  Flow flow_;
  std::size_t udp_payload_bytes_ = 0;  ///< no packet is that short: none yet
  std::uint32_t register_ = 0;         ///< with identification 0
};

/// Advances the register over the transport headers; masks BTH byte 4 (FECN, BECN, reserved).
[[nodiscard]] std::uint32_t icrc_headers(std::uint32_t crc, std::span<const std::byte> header_stack) noexcept;

/// The value to store (little-endian) or to compare.
[[nodiscard]] constexpr std::uint32_t icrc_finish(std::uint32_t crc) noexcept { return ~crc; }

/// Solves for the 16-bit IPv4 identification under which a packet of this length is right: `difference` is stored ICRC
/// xor computed ICRC with identification 0. Returns -1 where no identification explains it. A true answer for a
/// corrupted packet has probability 2^-16.
[[nodiscard]] int icrc_solve_id(std::uint32_t difference, std::size_t udp_payload_bytes) noexcept;

}  // namespace tensorwire::wire
