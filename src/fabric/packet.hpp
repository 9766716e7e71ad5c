// A packet of the simulated fabric: header fields and lengths, never payload bytes. What links and switches look at is
// a value of 20 bytes that moves from the calendar into a port's queue and back, so that memory is read in the order in
// which it lies; what only hosts look at stays where it is (PacketBody) and is found by number.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/random.hpp"
#include "fabric/numbered.hpp"
#include "transport/engine.hpp"

namespace tensorwire::fabric {

using HostId = std::uint32_t;
using SwitchId = std::uint32_t;
using PortId = std::uint32_t;

inline constexpr std::size_t kPriorities = 8;
inline constexpr PortId kNoPort = ~PortId{0};
/// Where a packet spends its 82 bytes beside payload and extension headers: preamble 8, Ethernet 14, IPv4 20, UDP 8,
/// BTH 12, ICRC 4, FCS 4, gap 12. The BTH is part of wire::header_bytes().
inline constexpr std::uint32_t kFramingBytes = 70;
/// A PFC frame: 64 bytes, preamble and gap.
inline constexpr std::uint32_t kPauseBytes = 84;
inline constexpr std::uint32_t kQuantumBytes = 64;  ///< a pause quantum is 512 bit times
inline constexpr std::uint32_t kLongestPause = 65535;

/// The class of service that a DSCP is mapped to, as switches map it by default: 26 (RoCE) to 3, 48 (CNP) to 6.
[[nodiscard]] constexpr std::uint8_t priority_of(std::uint8_t traffic_class) noexcept { return traffic_class >> 5; }

enum class PacketKind : std::uint8_t {
  kData,     ///< a request, or a response with data
  kControl,  ///< ACK, NAK
  kCnp,
  kPause,  ///< PFC, of one priority; goes no further than one link
};

using BodyId = std::uint32_t;
inline constexpr BodyId kNoBody = ~BodyId{0};

inline constexpr std::uint16_t kNotRouted = 0xffff;

struct Packet {
  BodyId body = kNoBody;
  HostId source = 0;
  HostId destination = 0;
  std::uint16_t udp_source_port = 0;
  std::uint16_t wire_bytes = 0;
  /// kPause: for how long; 0 is "go on". Others: in a switch, the port it came by; on a link, the port of the switch
  /// that it comes to by which it will leave, or kNotRouted. Ports are counted from the switch's first.
  std::uint16_t quanta_or_port = 0;
  PacketKind type = PacketKind::kData;
  std::uint8_t traffic_class = 0;  ///< of the IP header, ECN included

  [[nodiscard]] std::uint8_t priority() const noexcept { return priority_of(traffic_class); }
};
static_assert(sizeof(Packet) == 20);

/// What ECMP knows of a packet: the addresses and the UDP source port; the rest of the 5-tuple is the same for all.
[[nodiscard]] constexpr std::uint64_t flow_of(const Packet& packet) noexcept {
  return mix64(std::uint64_t{packet.source} << 40 ^ std::uint64_t{packet.destination} << 16 ^ packet.udp_source_port);
}

/// What the host that sent it tells the host that receives it.
struct alignas(64) PacketBody {
  const std::byte* slot_header = nullptr;  ///< the only bytes that travel (sparse_memory.hpp)
  std::uint32_t payload_bytes = 0;
  wire::Headers headers;  ///< what most opcodes have is in the first cache line
};

using PacketBodies = Numbered<PacketBody>;

}  // namespace tensorwire::fabric
