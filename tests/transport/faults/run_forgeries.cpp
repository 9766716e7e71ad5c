// Packets that no engine sent: wrong source, wrong PSN, wrong key, wrong length, opcodes out of place, acknowledgements
// of nothing. Their ICRC is right, as an attacker's would be.
#include <algorithm>

#include "base/bytes.hpp"
#include "run.hpp"
#include "transport/datagram.hpp"

namespace tensorwire::transport::faults {

/// An address of the same family; of IPv6 perhaps the right host's other one.
wire::Gid Run::stranger(bool ipv4) {
  const auto addresses = addresses_of(random_.below(8));
  return addresses[ipv4 ? 0 : 1 + random_.below(kFamilies - 1)];
}

void Run::forge() {
  if (!datagram_ends_.empty() && random_.below(4) == 0) return forge_datagram();
  Connection& connection = connections_[random_.below(static_cast<std::uint32_t>(connections_.size()))];
  const std::size_t side = random_.below(2);
  if (random_.below(2) == 0) {
    forge_request(connection, side);
  } else {
    forge_answer(connection, side);
  }
}

/// To `side`, as if from its peer. Mostly with the PSN that is expected, or near it, and one or two things wrong.
void Run::forge_request(Connection& connection, std::size_t side) {
  const End& victim = connection.ends[side];
  const Zone& zone = connection.directions[1 - side].target;
  const std::uint32_t mtu = victim.wanted.mtu;
  const std::uint32_t expected = victim.wanted.rq_psn + static_cast<std::uint32_t>(victim.ref.executed);

  wire::Headers h;
  h.dest_qpn = victim.qpn;
  h.opcode = static_cast<wire::Opcode>(random_.below(12));
  h.ack_req = random_.below(2) == 0;
  constexpr std::array<std::uint8_t, 3> kContinue = {1, 2, 3};  // Middle, Last, Last with immediate
  if (random_.below(3) == 0) {
    h.opcode = std::array{wire::Opcode::kRcReadRequest, wire::Opcode::kRcCompareSwap,
                          wire::Opcode::kRcFetchAdd}[random_.below(3)];
  } else if (random_.below(2) == 0) {
    h.opcode = static_cast<wire::Opcode>(victim.ref.message_base() + kContinue[random_.below(3)]);
  }
  std::uint32_t bytes = random_.below(2) == 0 ? mtu : random_.below(6) == 0 ? 0 : random_.below(2 * mtu);
  switch (random_.below(6)) {
    case 0:
    case 1:
      h.psn = expected;
      break;
    case 2:
      h.psn = expected + 1 + random_.below(20);
      break;
    case 3:
      h.psn = expected - 1 - random_.below(20);
      break;
    default:
      h.psn = static_cast<std::uint32_t>(random_.next());
  }
  h.psn &= wire::kPsnMask;
  h.va = zone.address + random_.below(static_cast<std::uint32_t>(zone.size) + 1);
  h.rkey = random_.below(2) == 0 ? zone.key : static_cast<std::uint32_t>(random_.next());
  h.dma_length = random_.below(4) == 0 ? static_cast<std::uint32_t>(random_.next()) : bytes + random_.below(2) * mtu;

  Packet packet = connection.blank(1 - side, Truth::kForged);
  switch (random_.below(24)) {
    case 0:
    case 1:
    case 2:
      packet.source = stranger(packet.flow.is_ipv4());
      packet.flow.source = packet.source;
      break;
    case 3:
      h.pkey = static_cast<std::uint16_t>(random_.below(4) == 0 ? 0x7fff : random_.next());
      break;
    case 4:
      h.opcode = random_.below(2) == 0 ? wire::Opcode::kUdSendOnly : wire::Opcode::kRcSendOnlyInvalidate;
      break;
    case 5:
      h.dest_qpn ^= 1U << random_.below(24);
      break;
    case 6:
      h.opcode = wire::Opcode::kCnp;
      bytes = wire::kCnpPayloadBytes;
      break;
    case 7:
      bytes = mtu_bytes(MtuCode::k4096) + random_.below(64);
      break;
    default:
      break;
  }
  if (scenario_.engine.dcqcn.enabled && random_.below(4) == 0) {
    h.opcode = wire::Opcode::kCnp;
    bytes = wire::kCnpPayloadBytes;
  }
  hits_(Point::kFaultForgedRequest);
  inject(std::move(packet), h, bytes);
}

void Run::forge_answer(Connection& connection, std::size_t side) {
  const ReferenceQp& ref = connection.ends[side].ref;
  const auto outstanding = static_cast<std::uint32_t>(ref.high - ref.una);
  wire::Headers h;
  h.dest_qpn = connection.ends[side].qpn;
  h.opcode = wire::Opcode::kRcAck;
  switch (random_.below(5)) {
    case 0:
      h.psn = ref.psn(ref.una + random_.below(outstanding + 1));
      break;
    case 1:
      h.psn = ref.psn(ref.high + random_.below(8));
      break;
    case 2:
      h.psn = ref.psn(ref.una) - 1 - random_.below(8);
      break;
    case 3:
      h.psn = ref.psn(ref.una);
      break;
    default:
      h.psn = static_cast<std::uint32_t>(random_.next());
  }
  h.psn &= wire::kPsnMask;
  constexpr std::array<std::uint8_t, 8> kSyndromes = {0x1f, 0x1f, 0x1f, 0x60, 0x60, 0x60, 0x21, 0x2a};
  h.syndrome = random_.below(8) == 0 ? static_cast<std::uint8_t>(random_.next()) : kSyndromes[random_.below(8)];
  h.msn = random_.below(1U << 24);
  if (scenario_.credits && h.syndrome == 0x1f && random_.below(3) == 0)
    h.syndrome = static_cast<std::uint8_t>(random_.below(31));

  Packet packet = connection.blank(1 - side, Truth::kForged);
  std::uint32_t bytes = 0;
  switch (random_.below(10)) {
    case 0:
    case 1:
      packet.source = stranger(packet.flow.is_ipv4());
      packet.flow.source = packet.source;
      break;
    case 2:
      h.opcode = wire::Opcode::kRcAtomicAck;
      break;
    case 3:
    case 4:
      h.opcode = static_cast<wire::Opcode>(0x0d + random_.below(4));
      bytes = random_.below(2) == 0 ? connection.ends[side].wanted.mtu : random_.below(64);
      break;
    default:
      break;
  }
  hits_(Point::kFaultForgedAnswer);
  inject(std::move(packet), h, bytes);
}

void Run::inject(Packet packet, const wire::Headers& headers, std::uint32_t bytes) {
  wire::Headers h = headers;
  if (!wire::traits(h.opcode).payload) bytes = 0;
  h.pad = h.opcode == wire::Opcode::kCnp ? 0 : static_cast<std::uint8_t>(-bytes & 3U);
  const std::size_t header_bytes = wire::header_bytes(h.opcode);
  packet.bytes = adversary_.take_buffer();
  packet.bytes.assign(header_bytes + bytes + h.pad + wire::kIcrcBytes, std::byte{0xee});
  wire::encode(h, packet.bytes);
  packet.ip_id = static_cast<std::uint16_t>(random_.next());
  store_le32(packet.bytes.data() + packet.bytes.size() - wire::kIcrcBytes,
             icrc_of(packet.bytes, header_bytes, packet.flow, packet.ip_id));
  adversary_.inject(std::move(packet), now_ + random_.below(5) * kMicrosecond);
}

}  // namespace tensorwire::transport::faults
