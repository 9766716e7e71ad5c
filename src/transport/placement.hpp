// How a link copies: the bytes of a packet out of the pieces that next_tx() named, and to where classify() said. One
// function each for every link.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "transport/engine.hpp"
#include "wire/icrc.hpp"

namespace tensorwire::transport {

/// Copies the payload of `desc` to the beginning of `to`, advancing `crc` over it when given. False when the memory is
/// gone: Engine::tx_failed().
[[nodiscard]] inline bool gather(const TxDesc& desc, std::span<std::byte> to, std::uint32_t* crc) noexcept {
  for (const Piece& piece : std::span{desc.pieces}.first(desc.piece_count)) {
    const std::span<std::byte> here = to.first(piece.length);
    if (piece.mr != nullptr) {
      if (!piece.mr->ops->load(piece.address, here, crc)) return false;
    } else {
      const auto* const from = reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(piece.address));
      if (crc != nullptr) {
        *crc = wire::crc_copy(*crc, here.data(), {from, piece.length});
      } else {
        std::memcpy(here.data(), from, piece.length);
      }
    }
    to = to.subspan(piece.length);
  }
  return true;
}

/// Copies `bytes` to the pieces, advancing `crc` over them when given. False when the memory is gone.
[[nodiscard]] inline bool scatter(std::span<const Piece> pieces, std::span<const std::byte> bytes,
                                  std::uint32_t* crc) noexcept {
  for (const Piece& piece : pieces) {
    if (!piece.mr->ops->store(piece.address, bytes.first(piece.length), crc)) return false;
    bytes = bytes.subspan(piece.length);
  }
  return true;
}

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
  return scatter(std::span{verdict.pieces}.first(verdict.piece_count), payload, crc);
}

}  // namespace tensorwire::transport
