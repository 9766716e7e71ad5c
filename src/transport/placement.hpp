// How a link puts the bytes of a packet where classify() said: one function for every link that copies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/engine.hpp"

namespace tensorwire::transport {

/// A datagram: the prefix and the payload, one after the other, over the pieces.
[[nodiscard]] inline bool place_with_prefix(const RxVerdict& verdict, std::span<const std::byte> payload) noexcept {
  std::span<const std::byte> prefix = std::span{verdict.prefix}.first(verdict.prefix_bytes);
  for (const Piece& piece : std::span{verdict.pieces}.first(verdict.piece_count)) {
    std::size_t done = 0;
    for (std::span<const std::byte>* from : {&prefix, &payload}) {
      const std::size_t bytes = std::min(piece.length - done, from->size());
      if (bytes == 0) continue;
      if (!piece.mr->ops->store(piece.address + done, from->first(bytes), nullptr)) return false;
      *from = from->subspan(bytes);
      done += bytes;
    }
  }
  return true;
}

/// Copies `payload` to the pieces of a kPlace verdict, advancing `crc` over it when given (never with a prefix: such
/// packets are verified first). False when the memory is gone: Engine::reject().
[[nodiscard]] inline bool place(const RxVerdict& verdict, std::span<const std::byte> payload,
                                std::uint32_t* crc) noexcept {
  if (verdict.prefix_bytes != 0) return place_with_prefix(verdict, payload);
  for (const Piece& piece : std::span{verdict.pieces}.first(verdict.piece_count)) {
    if (!piece.mr->ops->store(piece.address, payload.first(piece.length), crc)) return false;
    payload = payload.subspan(piece.length);
  }
  return true;
}

}  // namespace tensorwire::transport
