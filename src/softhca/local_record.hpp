// One record of the same-host link as bytes in a ring slot: the packet headers, and the payload either as its bytes or
// as pieces of the sender's memory. The bytes come from another process: decode() trusts none of them.
//
// Body (120 bytes, little-endian): payload length 4 | kind 1 | pieces 1 | header length 1 | 0 | header stack 40 | 72
// bytes of payload, or withdrawals 8 and five pieces; longer ones lie in the slot's data. A piece is address 8 | length
// 4.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "softhca/shm_ring.hpp"
#include "transport/engine.hpp"
#include "wire/headers.hpp"

namespace tensorwire::softhca {

/// A run of bytes in the sender's address space.
struct RemotePiece {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
};

struct LocalRecord {
  wire::Headers headers;
  std::uint32_t payload_bytes = 0;
  bool pulled = false;               ///< the payload is in `pieces`, else in `bytes`
  std::uint8_t piece_count = 0;      ///< 1..kMaxSge when pulled; their lengths add up to payload_bytes
  std::span<const std::byte> bytes;  ///< in the ring slot: valid until it is given back
  std::array<RemotePiece, transport::kMaxSge> pieces;
  std::uint64_t withdrawals = 0;  ///< when pulled: of the sender's queue pair, while the message stands
};

/// Writes a record without payload bytes and returns where its `payload_bytes` (at most kSlotDataBytes) bytes go.
[[nodiscard]] std::span<std::byte> encode_inline(const wire::Headers& headers, std::uint32_t payload_bytes,
                                                 RingSlot slot) noexcept;

/// Writes a record whose payload the receiver pulls. Every piece is registered memory, and there is at least one.
void encode_pulled(const transport::TxDesc& desc, RingSlot slot) noexcept;

/// False for anything that encode_inline() and encode_pulled() do not write. Every field of a true answer is consistent
/// with every other; what it asks for is for the engine to judge.
[[nodiscard]] bool decode(RingSlot slot, LocalRecord& out) noexcept;

}  // namespace tensorwire::softhca
