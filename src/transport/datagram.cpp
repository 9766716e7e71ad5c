#include "transport/datagram.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "transport/placement.hpp"

namespace tensorwire::transport {

bool serialise(const TxDesc& desc, const wire::Flow& flow, std::uint16_t ip_id, std::vector<std::byte>& datagram) {
  const std::size_t header_bytes = wire::header_bytes(desc.headers.opcode);
  const std::size_t pad = desc.headers.pad;
  datagram.resize(header_bytes + desc.payload_bytes + pad + wire::kIcrcBytes);
  const std::span<std::byte> all(datagram);
  wire::encode(desc.headers, all);

  std::uint32_t crc = wire::icrc_begin(flow, all.size(), ip_id);
  crc = wire::icrc_headers(crc, all.first(header_bytes));
  std::span<std::byte> rest = all.subspan(header_bytes);
  for (std::size_t i = 0; i < desc.piece_count; ++i) {
    const Piece& piece = desc.pieces[i];
    const std::span<std::byte> to = rest.first(piece.length);
    if (piece.mr != nullptr) {
      if (!piece.mr->ops->load(piece.address, to, &crc)) return false;
    } else {
      const auto* from = reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(piece.address));
      crc = wire::crc_copy(crc, to.data(), {from, piece.length});
    }
    rest = rest.subspan(piece.length);
  }
  std::fill_n(rest.begin(), pad, std::byte{0});
  crc = wire::crc_update(crc, rest.first(pad));
  store_le32(rest.data() + pad, wire::icrc_finish(crc));
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
