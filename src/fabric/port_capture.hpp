// What passes one port of the simulated fabric, both ways, as a capture that Wireshark opens: RoCEv2 packets with the
// headers that the engines gave them, and PFC frames. Of payload there is the slot header of a message that has one,
// the rest is zeros (packets are not cut: Wireshark would call them malformed). Owned by its caller; lives as long as
// the fabric runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "fabric/packet.hpp"
#include "wire/pcap.hpp"

namespace tensorwire::fabric {

class PortCapture {
 public:
  static constexpr std::uint64_t kMostPackets = 100'000;  ///< at most 420 MB

  /// @throws Error naming the file.
  explicit PortCapture(const std::string& path) : writer_(path) {}

  /// Only the first kMostPackets go to the file.
  void record(const Packet& packet, const PacketBodies& bodies, Ps time) noexcept;
  /// @throws Error when a packet could not be written.
  void finish() { writer_.flush(); }
  /// That passed.
  [[nodiscard]] std::uint64_t packets() const noexcept { return packets_; }

 private:
  static constexpr std::size_t kLongestPayload = 4096;

  void record_pause(const Packet& packet, Ps time) noexcept;

  wire::PcapWriter writer_;
  std::uint64_t packets_ = 0;
  std::array<std::byte, wire::kMaxHeaderBytes + kLongestPayload + 4 + wire::kIcrcBytes> datagram_{};
};

}  // namespace tensorwire::fabric
