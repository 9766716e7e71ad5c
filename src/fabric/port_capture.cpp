#include "fabric/port_capture.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/bytes.hpp"
#include "collective/plan.hpp"
#include "fabric/host.hpp"
#include "wire/frame.hpp"

namespace tensorwire::fabric {

void PortCapture::record(const Packet& packet, const PacketBodies& bodies, Ps time) noexcept {
  if (++packets_ > kMostPackets) return;
  if (packet.type == PacketKind::kPause) return record_pause(packet, time);
  const PacketBody& body = bodies[packet.body];
  const std::size_t head = wire::encode(body.headers, std::span{datagram_});
  const std::size_t end = head + body.payload_bytes + body.headers.pad;
  const std::size_t known =
      body.slot_header != nullptr ? std::min<std::size_t>(collective::kSlotHeaderBytes, body.payload_bytes) : 0;
  if (known != 0) std::memcpy(&datagram_[head], body.slot_header, known);

  wire::FrameInfo info;
  info.flow = {gid_of(packet.source), gid_of(packet.destination), packet.udp_source_port, wire::kRoceUdpPort};
  info.tos = packet.traffic_class;
  std::uint32_t crc = wire::icrc_begin(info.flow, end + wire::kIcrcBytes, info.ip_id);
  crc = wire::icrc_headers(crc, std::span{datagram_}.first(head));
  crc = wire::crc_update(crc, std::span{datagram_}.subspan(head, end - head));
  store_le32(&datagram_[end], wire::icrc_finish(crc));
  writer_.write(info, std::span{datagram_}.first(end + wire::kIcrcBytes), time);

  std::memset(&datagram_[head], 0, known);  // payload is zeros for the next one, too
  std::memset(&datagram_[end], 0, wire::kIcrcBytes);
  std::memset(datagram_.data(), 0, head);
}

/// IEEE 802.1Qbb: MAC control, opcode 0x0101, a bit for each priority, eight times in quanta.
void PortCapture::record_pause(const Packet& packet, Ps time) noexcept {
  constexpr std::array kTo{0x01, 0x80, 0xc2, 0x00, 0x00, 0x01};
  constexpr std::size_t kTimes = 18;
  std::array<std::byte, 60> frame{};
  for (std::size_t n = 0; n < kTo.size(); ++n) frame[n] = static_cast<std::byte>(kTo[n]);
  store_be16(&frame[6], 0x0200);
  store_be16(&frame[12], 0x8808);
  store_be16(&frame[14], 0x0101);
  store_be16(&frame[16], static_cast<std::uint16_t>(1U << packet.priority()));
  store_be16(&frame[kTimes + 2 * std::size_t{packet.priority()}], packet.quanta_or_port);
  writer_.write_frame(frame, time);
}

}  // namespace tensorwire::fabric
