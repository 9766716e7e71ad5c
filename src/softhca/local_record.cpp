#include "softhca/local_record.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/bytes.hpp"

namespace tensorwire::softhca {
namespace {

constexpr std::size_t kLengthAt = 0, kKindAt = 4, kPieceCountAt = 5, kHeaderLengthAt = 6, kHeadersAt = 8;
constexpr std::size_t kTailAt = kHeadersAt + wire::kMaxHeaderBytes;
constexpr std::size_t kTailBytes = kSlotBodyBytes - kTailAt;
constexpr std::size_t kPieceBytes = 12;
constexpr std::size_t kWithdrawalsAt = kTailAt;
constexpr std::size_t kPiecesAt = kWithdrawalsAt + sizeof(std::uint64_t);
constexpr std::size_t kPiecesInBody = (kSlotBodyBytes - kPiecesAt) / kPieceBytes;
static_assert(transport::kMaxSge * kPieceBytes <= kSlotDataBytes);
static_assert(transport::kMaxInlineBytes <= kSlotDataBytes, "inline data has no address that could be pulled from");
static_assert(mtu_bytes(transport::MtuCode::k4096) <= kSlotDataBytes, "a READ response is never pulled");

constexpr auto kInline = std::byte{1};
constexpr auto kPulled = std::byte{2};

void encode_front(const wire::Headers& headers, std::uint32_t payload_bytes, std::byte kind, std::size_t pieces,
                  RingSlot slot) noexcept {
  wire::Headers unpadded = headers;
  unpadded.pad = 0;  // there are no pad bytes here; decode() computes the field anew
  std::byte* const body = slot.body.data();
  store_le32(body + kLengthAt, payload_bytes);
  body[kKindAt] = kind;
  body[kPieceCountAt] = static_cast<std::byte>(pieces);
  const std::size_t length = wire::encode(unpadded, slot.body.subspan<kHeadersAt, wire::kMaxHeaderBytes>());
  body[kHeaderLengthAt] = static_cast<std::byte>(length);
  body[kHeaderLengthAt + 1] = std::byte{0};
}

/// The payload: in the body's tail when it fits there.
template <class Slot>
auto tail_or_data(Slot& slot, std::size_t bytes) noexcept {
  return bytes <= kTailBytes ? slot.body.template subspan<kTailAt>().first(bytes) : slot.data.first(bytes);
}

/// wire::parse() does the checking of opcode, version and lengths. It expects an ICRC behind the header stack, and the
/// sixteen bytes that every CNP has, and does not look at them: any bytes do.
bool decode_headers(std::span<const std::byte> at, std::size_t header_bytes, std::uint32_t payload_bytes,
                    wire::Headers& out) noexcept {
  const bool cnp = at[0] == static_cast<std::byte>(wire::Opcode::kCnp);
  const std::size_t format = cnp ? wire::kCnpPayloadBytes : 0;
  wire::Parsed parsed;
  if (wire::parse(at.first(header_bytes + format + wire::kIcrcBytes), parsed) != wire::ParseStatus::kOk) return false;
  if (parsed.payload_bytes != format || (cnp && payload_bytes != format)) return false;
  const wire::OpcodeTraits& traits = wire::traits(parsed.headers.opcode);
  // A channel is made for a connection. A datagram would also bring a network header, which nobody can pull.
  if (traits.deth || (payload_bytes != 0 && !traits.payload)) return false;
  out = parsed.headers;
  out.pad = static_cast<std::uint8_t>((4 - payload_bytes % 4) % 4);
  return true;
}

bool decode_pieces(std::span<const std::byte> bytes, LocalRecord& out) noexcept {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < out.piece_count; ++i) {
    const std::byte* const at = bytes.data() + i * kPieceBytes;
    out.pieces[i] = {load_le64(at), load_le32(at + 8)};
    sum += out.pieces[i].length;
  }
  return sum == out.payload_bytes;
}

}  // namespace

std::span<std::byte> encode_inline(const wire::Headers& headers, std::uint32_t payload_bytes, RingSlot slot) noexcept {
  encode_front(headers, payload_bytes, kInline, 0, slot);
  return tail_or_data(slot, payload_bytes);
}

void encode_pulled(const transport::TxDesc& desc, RingSlot slot) noexcept {
  encode_front(desc.headers, desc.payload_bytes, kPulled, desc.piece_count, slot);
  store_le64(slot.body.data() + kWithdrawalsAt, desc.withdrawals);
  std::byte* at = desc.piece_count <= kPiecesInBody ? slot.body.data() + kPiecesAt : slot.data.data();
  for (std::size_t i = 0; i < desc.piece_count; ++i, at += kPieceBytes) {
    store_le64(at, desc.pieces[i].address);
    store_le32(at + 8, desc.pieces[i].length);
  }
}

bool decode(RingSlot slot, LocalRecord& out) noexcept {
  // A copy that nobody else can change; the fence keeps the compiler from reading shared memory a second time.
  std::array<std::byte, kSlotBodyBytes> body;
  std::memcpy(body.data(), slot.body.data(), body.size());
  std::atomic_signal_fence(std::memory_order_seq_cst);

  const auto header_length = std::to_integer<std::size_t>(body[kHeaderLengthAt]);
  out.payload_bytes = load_le32(body.data() + kLengthAt);
  out.piece_count = std::to_integer<std::uint8_t>(body[kPieceCountAt]);
  out.pulled = body[kKindAt] == kPulled;
  out.bytes = {};
  if (header_length > wire::kMaxHeaderBytes || out.payload_bytes > transport::kMaxMessageBytes) return false;
  if (!decode_headers(std::span(body).subspan(kHeadersAt), header_length, out.payload_bytes, out.headers)) return false;

  if (body[kKindAt] == kInline) {
    if (out.piece_count != 0 || out.payload_bytes > kSlotDataBytes) return false;
    out.bytes = tail_or_data(slot, out.payload_bytes);
    return true;
  }
  if (!out.pulled || out.piece_count == 0 || out.piece_count > transport::kMaxSge) return false;
  std::array<std::byte, transport::kMaxSge * kPieceBytes> pieces;
  const std::size_t bytes = out.piece_count * kPieceBytes;
  out.withdrawals = load_le64(body.data() + kWithdrawalsAt);
  if (out.piece_count <= kPiecesInBody) {
    std::copy_n(body.data() + kPiecesAt, bytes, pieces.data());
  } else {
    std::memcpy(pieces.data(), slot.data.data(), bytes);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  return decode_pieces(std::span(pieces).first(bytes), out);
}

}  // namespace tensorwire::softhca
