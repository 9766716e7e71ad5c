#include "wire/headers.hpp"

#include <cassert>

#include "base/bytes.hpp"

namespace tensorwire::wire {

namespace {

// BTH byte 1: SE:1 MigReq:1 Pad:2 TVer:4. Byte 4: FECN:1 BECN:1 reserved:6. Byte 8: AckReq:1 reserved:7.
constexpr unsigned kSolicitedBit = 0x80;
constexpr unsigned kMigReqBit = 0x40;
constexpr unsigned kPadShift = 4;
constexpr unsigned kPadMask = 0x3;
constexpr unsigned kVersionMask = 0x0f;
constexpr unsigned kFecnBit = 0x80;
constexpr unsigned kBecnBit = 0x40;
constexpr unsigned kAckReqBit = 0x80;

constexpr std::byte flag(bool on, unsigned bit) noexcept { return static_cast<std::byte>(on ? bit : 0U); }

bool has(std::byte value, unsigned bit) noexcept { return (std::to_integer<unsigned>(value) & bit) != 0; }

std::size_t stack_bytes(const OpcodeTraits& t) noexcept {
  return kBthBytes + (t.deth ? kDethBytes : 0) + (t.reth ? kRethBytes : 0) + (t.atomic_eth ? kAtomicEthBytes : 0) +
         (t.aeth ? kAethBytes : 0) + (t.atomic_ack_eth ? kAtomicAckEthBytes : 0) + (t.immediate ? kImmediateBytes : 0) +
         (t.invalidate ? kInvalidateBytes : 0);
}

void encode_bth(const Headers& h, std::byte* p) noexcept {
  p[0] = static_cast<std::byte>(h.opcode);
  p[1] = flag(h.solicited, kSolicitedBit) | flag(h.mig_req, kMigReqBit) |
         static_cast<std::byte>((h.pad & kPadMask) << kPadShift);
  store_be16(p + 2, h.pkey);
  p[4] = flag(h.fecn, kFecnBit) | flag(h.becn, kBecnBit);
  store_be24(p + 5, h.dest_qpn);
  p[8] = flag(h.ack_req, kAckReqBit);
  store_be24(p + 9, h.psn);
}

void parse_bth(const std::byte* p, Headers& h) noexcept {
  h.opcode = static_cast<Opcode>(p[0]);
  h.solicited = has(p[1], kSolicitedBit);
  h.mig_req = has(p[1], kMigReqBit);
  h.pad = static_cast<std::uint8_t>((std::to_integer<unsigned>(p[1]) >> kPadShift) & kPadMask);
  h.pkey = load_be16(p + 2);
  h.fecn = has(p[4], kFecnBit);
  h.becn = has(p[4], kBecnBit);
  h.dest_qpn = load_be24(p + 5);
  h.ack_req = has(p[8], kAckReqBit);
  h.psn = load_be24(p + 9);
}

// The extension headers stand in the order of stack_bytes(); encode and parse below must keep to it.

std::byte* encode_extensions(const Headers& h, const OpcodeTraits& t, std::byte* p) noexcept {
  if (t.deth) {
    store_be32(p, h.qkey);
    p[4] = std::byte{0};
    store_be24(p + 5, h.src_qpn);
    p += kDethBytes;
  }
  if (t.reth) {
    store_be64(p, h.va);
    store_be32(p + 8, h.rkey);
    store_be32(p + 12, h.dma_length);
    p += kRethBytes;
  }
  if (t.atomic_eth) {
    store_be64(p, h.va);
    store_be32(p + 8, h.rkey);
    store_be64(p + 12, h.swap_add);
    store_be64(p + 20, h.compare);
    p += kAtomicEthBytes;
  }
  if (t.aeth) {
    p[0] = static_cast<std::byte>(h.syndrome);
    store_be24(p + 1, h.msn);
    p += kAethBytes;
  }
  if (t.atomic_ack_eth) {
    store_be64(p, h.original);
    p += kAtomicAckEthBytes;
  }
  if (t.immediate) {
    store_be32(p, h.immediate);
    p += kImmediateBytes;
  }
  if (t.invalidate) {
    store_be32(p, h.invalidate_rkey);
    p += kInvalidateBytes;
  }
  return p;
}

void parse_extensions(const std::byte* p, const OpcodeTraits& t, Headers& h) noexcept {
  if (t.deth) {
    h.qkey = load_be32(p);
    h.src_qpn = load_be24(p + 5);
    p += kDethBytes;
  }
  if (t.reth) {
    h.va = load_be64(p);
    h.rkey = load_be32(p + 8);
    h.dma_length = load_be32(p + 12);
    p += kRethBytes;
  }
  if (t.atomic_eth) {
    h.va = load_be64(p);
    h.rkey = load_be32(p + 8);
    h.swap_add = load_be64(p + 12);
    h.compare = load_be64(p + 20);
    p += kAtomicEthBytes;
  }
  if (t.aeth) {
    h.syndrome = std::to_integer<std::uint8_t>(p[0]);
    h.msn = load_be24(p + 1);
    p += kAethBytes;
  }
  if (t.atomic_ack_eth) {
    h.original = load_be64(p);
    p += kAtomicAckEthBytes;
  }
  if (t.immediate) {
    h.immediate = load_be32(p);
    p += kImmediateBytes;
  }
  if (t.invalidate) h.invalidate_rkey = load_be32(p);
}

/// `body_bytes` is payload plus pad.
ParseStatus check_body(const Headers& h, const OpcodeTraits& t, std::size_t body_bytes) noexcept {
  if (body_bytes % 4 != 0) return ParseStatus::kBadLength;
  if (h.opcode == Opcode::kCnp && body_bytes != kCnpPayloadBytes) return ParseStatus::kBadLength;
  if (!t.payload && body_bytes != 0) return ParseStatus::kBadLength;
  if (h.pad != 0 && (h.opcode == Opcode::kCnp || body_bytes == 0)) return ParseStatus::kBadPad;
  return ParseStatus::kOk;
}

}  // namespace

std::size_t header_bytes(Opcode opcode) noexcept { return stack_bytes(traits(opcode)); }

std::size_t encode(const Headers& h, std::span<std::byte> out) noexcept {
  const OpcodeTraits& t = traits(h.opcode);
  assert(out.size() >= stack_bytes(t));
  encode_bth(h, out.data());
  return static_cast<std::size_t>(encode_extensions(h, t, out.data() + kBthBytes) - out.data());
}

std::string_view name(ParseStatus status) noexcept {
  switch (status) {
    case ParseStatus::kOk:
      return "ok";
    case ParseStatus::kTooShort:
      return "too short";
    case ParseStatus::kUnknownOpcode:
      return "unknown opcode";
    case ParseStatus::kBadVersion:
      return "bad transport version";
    case ParseStatus::kBadPad:
      return "bad pad";
    case ParseStatus::kBadLength:
      return "bad length";
  }
  return "invalid status";
}

ParseStatus parse(std::span<const std::byte> udp_payload, Parsed& out) noexcept {
  out = Parsed{};
  if (udp_payload.size() < kBthBytes + kIcrcBytes) return ParseStatus::kTooShort;
  const std::byte* p = udp_payload.data();
  const OpcodeTraits& t = traits(std::to_integer<std::uint8_t>(p[0]));
  if (!t.known) return ParseStatus::kUnknownOpcode;
  if (has(p[1], kVersionMask)) return ParseStatus::kBadVersion;

  const std::size_t stack = stack_bytes(t);
  if (udp_payload.size() < stack + kIcrcBytes) return ParseStatus::kTooShort;
  const std::size_t body = udp_payload.size() - stack - kIcrcBytes;

  Headers h;
  parse_bth(p, h);
  if (const ParseStatus status = check_body(h, t, body); status != ParseStatus::kOk) return status;
  parse_extensions(p + kBthBytes, t, h);
  out = Parsed{.headers = h, .header_bytes = stack, .payload_bytes = body - h.pad};
  return ParseStatus::kOk;
}

}  // namespace tensorwire::wire
