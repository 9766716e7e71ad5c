#include "transport/congestion.hpp"

#include <algorithm>
#include <array>

#include "wire/frame.hpp"

namespace tensorwire::transport {

namespace {

/// Around the payload on Ethernet: preamble, MAC, IPv4, UDP, BTH, ICRC, FCS, gap.
constexpr std::uint32_t kFramingBytes = 82;
constexpr std::uint32_t kLongestPaced = 1U << 20;
constexpr std::array<std::byte, wire::kCnpPayloadBytes> kZeros{};

}  // namespace

void Congestion::start(const DcqcnConfig& config, AddressVector& av) noexcept {
  *this = {};
  cnp_av_ = av;
  cnp_av_.traffic_class = config.cnp_traffic_class;
  av.traffic_class = static_cast<std::uint8_t>((av.traffic_class & ~wire::kEcnMask) | wire::kEcnCapable);
}

CnpPacer::Verdict Congestion::on_marked(const DcqcnConfig& config, Ps now) noexcept {
  const CnpPacer::Verdict verdict = pacer_.on_marked(config, now);
  if (verdict == CnpPacer::Verdict::kNow) owes_cnp_ = true;
  return verdict;
}

bool Congestion::on_notice_deadline(const DcqcnConfig& config, Ps now) noexcept {
  const bool due = pacer_.on_deadline(config, now);
  if (due) owes_cnp_ = true;
  return due;
}

void Congestion::build_cnp(std::uint32_t dest_qpn, std::uint32_t src_qpn, PathId path, TxDesc& out) noexcept {
  owes_cnp_ = false;
  out.headers = {};
  out.headers.opcode = wire::Opcode::kCnp;
  out.headers.becn = true;
  out.headers.dest_qpn = dest_qpn;
  out.av = &cnp_av_;
  out.path = path;
  out.src_qpn = src_qpn;
  out.payload_bytes = kZeros.size();
  out.retransmission = false;
  out.inline_pieces = true;
  out.piece_count = 1;
  out.pieces[0] = {nullptr, reinterpret_cast<std::uintptr_t>(kZeros.data()), kZeros.size()};
}

Ps Congestion::on_sent(const DcqcnConfig& config, std::uint32_t payload_bytes, Ps now) noexcept {
  if (!limiter_.active()) return now;
  return limiter_.on_sent(config, std::min(payload_bytes, kLongestPaced) + kFramingBytes, now);
}

}  // namespace tensorwire::transport
