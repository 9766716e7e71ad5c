#include "transport/datagram.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "transport/placement.hpp"

namespace tensorwire::transport {

std::size_t datagram_bytes(const TxDesc& desc) noexcept {
  return wire::header_bytes(desc.headers.opcode) + desc.payload_bytes + desc.headers.pad + wire::kIcrcBytes;
}

bool serialise(const TxDesc& desc, std::uint32_t crc, std::span<std::byte> out) noexcept {
  const std::size_t header_bytes = wire::encode(desc.headers, out);
  crc = wire::icrc_headers(crc, out.first(header_bytes));
  const std::span<std::byte> payload = out.subspan(header_bytes);
  if (!gather(desc, payload, &crc)) return false;
  const std::span<std::byte> pad = payload.subspan(desc.payload_bytes, desc.headers.pad);
  if (!pad.empty()) {
    std::ranges::fill(pad, std::byte{0});
    crc = wire::crc_update(crc, pad);
  }
  store_le32(out.last(wire::kIcrcBytes).data(), wire::icrc_finish(crc));
  return true;
}

std::uint32_t icrc_of(std::span<const std::byte> datagram, std::size_t header_bytes, const wire::Flow& flow,
                      std::uint16_t ip_id) noexcept {
  std::uint32_t crc = wire::icrc_begin(flow, datagram.size(), ip_id);
  crc = wire::icrc_headers(crc, datagram.first(header_bytes));
  crc = wire::crc_update(crc, datagram.subspan(header_bytes, datagram.size() - header_bytes - wire::kIcrcBytes));
  return wire::icrc_finish(crc);
}

Arrival place(std::span<const std::byte> datagram, const wire::Parsed& parsed, const RxVerdict& verdict,
              const wire::Flow& flow, std::uint16_t ip_id) noexcept {
  const std::span<const std::byte> payload = datagram.subspan(parsed.header_bytes, parsed.payload_bytes);
  const std::uint32_t carried = load_le32(datagram.last(wire::kIcrcBytes).data());
  if (verdict.action == RxAction::kPlace && !verdict.verify_first) {
    std::uint32_t crc = wire::icrc_begin(flow, datagram.size(), ip_id);
    crc = wire::icrc_headers(crc, datagram.first(parsed.header_bytes));
    if (!place(verdict, payload, &crc)) return Arrival::kMemoryGone;
    const std::size_t done = parsed.header_bytes + parsed.payload_bytes;
    crc = wire::crc_update(crc, datagram.subspan(done, datagram.size() - done - wire::kIcrcBytes));
    return wire::icrc_finish(crc) == carried ? Arrival::kGood : Arrival::kBadIcrc;
  }
  if (icrc_of(datagram, parsed.header_bytes, flow, ip_id) != carried) return Arrival::kBadIcrc;
  if (verdict.action == RxAction::kPlace && !place(verdict, payload, nullptr)) return Arrival::kMemoryGone;
  return Arrival::kGood;
}

}  // namespace tensorwire::transport
