#include "record.hpp"

#include <algorithm>
#include <array>

#include "base/bytes.hpp"

namespace tensorwire::softhca::faults {

bool Record::nowhere() const noexcept {
  constexpr std::uint64_t kLowest = 1ULL << 12;  // Linux maps nothing below
  constexpr std::uint64_t kHighest = 1ULL << 56;
  return std::ranges::all_of(pieces, [](const RemotePiece& piece) {
    return piece.length != 0 && ((piece.address < kLowest && piece.length <= kLowest) || piece.address >= kHighest);
  });
}

std::optional<Record> read_record(RingSlot slot) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned>(slot.body[at]); };
  const std::uint32_t bytes = load_le32(slot.body.data());
  const unsigned kind = byte(4);
  const unsigned pieces = byte(5);
  const unsigned stack = byte(6);
  if (stack > 40 || bytes > (1U << 31)) return std::nullopt;

  std::vector<std::byte> headers(slot.body.begin() + 8, slot.body.begin() + 8 + stack);
  const bool cnp = byte(8) == static_cast<unsigned>(wire::Opcode::kCnp);
  if (cnp && bytes != 16) return std::nullopt;
  headers.resize(stack + (cnp ? 16 : 0) + wire::kIcrcBytes);
  wire::Parsed parsed;
  if (wire::parse(headers, parsed) != wire::ParseStatus::kOk || parsed.payload_bytes != (cnp ? 16 : 0))
    return std::nullopt;
  const wire::OpcodeTraits& traits = wire::traits(parsed.headers.opcode);
  if (traits.deth || (bytes != 0 && !traits.payload)) return std::nullopt;

  Record record;
  record.headers = parsed.headers;
  record.headers.pad = static_cast<std::uint8_t>((4 - bytes % 4) % 4);
  record.bytes = bytes;
  if (kind == 1 && pieces == 0 && bytes <= 4096) {
    const std::byte* const from = bytes <= 72 ? slot.body.data() + 48 : slot.data.data();
    record.payload.assign(from, from + bytes);
    return record;
  }
  if (kind != 2 || pieces == 0 || pieces > 16) return std::nullopt;
  const std::byte* at = pieces <= 5 ? slot.body.data() + 56 : slot.data.data();
  std::uint64_t sum = 0;
  for (unsigned i = 0; i < pieces; ++i, at += 12) {
    record.pieces.push_back({load_le32(at) + (std::uint64_t{load_le32(at + 4)} << 32), load_le32(at + 8)});
    sum += record.pieces.back().length;
  }
  if (sum != bytes) return std::nullopt;
  record.withdrawals = load_le64(slot.body.data() + 48);
  return record;
}

}  // namespace tensorwire::softhca::faults
