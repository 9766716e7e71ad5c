// A packet of the simulated fabric: header fields and lengths, never payload bytes. It is an event itself (its
// arrival), lies in at most one queue at a time, and belongs to whoever holds it: a port's queue, or the event queue
// while it is on a link. Packets come from a pool and go back to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "fabric/event_queue.hpp"
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

/// All that a switch looks at lies in the first cache line.
struct alignas(64) Packet : Event {
  PacketKind type = PacketKind::kData;
  std::uint8_t priority = 0;
  std::uint8_t ecn = 0;
  std::uint16_t ingress = 0;  ///< in a switch: the port it came by, counted from the switch's first
  std::uint16_t quanta = 0;   ///< kPause: 0 is "go on"
  std::uint32_t wire_bytes = 0;
  std::uint32_t payload_bytes = 0;
  HostId source = 0;
  HostId destination = 0;
  std::uint64_t flow = 0;  ///< hash of the 5-tuple
  wire::Headers headers;
  std::uint16_t udp_source_port = 0;
  std::uint8_t traffic_class = 0;
  const std::byte* slot_header = nullptr;  ///< the only bytes that travel (sparse_memory.hpp)
};
static_assert(sizeof(Packet) <= 192);

/// Packets in the order in which they came.
class PacketQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }
  [[nodiscard]] const Packet& front() const noexcept { return static_cast<const Packet&>(*head_); }
  /// Linked by `next`.
  [[nodiscard]] const Event* head() const noexcept { return head_; }
  void push(Packet& packet) noexcept {
    packet.next = nullptr;
    (head_ == nullptr ? head_ : tail_->next) = &packet;
    tail_ = &packet;
  }
  Packet& pop() noexcept {
    Event* const packet = head_;
    head_ = packet->next;
    return static_cast<Packet&>(*packet);
  }

 private:
  Event* head_ = nullptr;
  Event* tail_ = nullptr;
};

class PacketPool {
 public:
  /// What it was before is still in it: whoever takes it sets every field that is read later.
  [[nodiscard]] Packet& take() {
    if (free_ == nullptr) return packets_.emplace_back();
    Packet& packet = *free_;
    free_ = static_cast<Packet*>(packet.next);
    return packet;
  }
  void give_back(Packet& packet) noexcept {
    packet.next = free_;
    free_ = &packet;
  }
  /// The most that were in use at once.
  [[nodiscard]] std::size_t size() const noexcept { return packets_.size(); }

 private:
  std::deque<Packet> packets_;
  Packet* free_ = nullptr;
};

}  // namespace tensorwire::fabric
