// Packets in the order in which they came, in chunks that all queues of a fabric share: what one port holds lies side
// by side, however many ports there are.
#pragma once

#include <array>
#include <cstdint>

#include "fabric/packet.hpp"

namespace tensorwire::fabric {

struct alignas(64) PacketChunk {
  static constexpr std::uint16_t kPackets = 6;

  std::array<Packet, kPackets> packets;
  std::uint32_t next = 0;  ///< the chunk behind it, if there is one
};
static_assert(sizeof(PacketChunk) == 128);
using PacketChunks = Numbered<PacketChunk>;

/// Its chunks are given back as it empties; it forgets them when it is destroyed with something in it.
class PacketQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == kNone; }
  /// There must be one.
  [[nodiscard]] const Packet& front(const PacketChunks& chunks) const noexcept {
    return chunks[first_].packets[begin_];
  }

  void push(PacketChunks& chunks, const Packet& packet) {
    if (empty() || end_ == PacketChunk::kPackets) {
      const std::uint32_t chunk = chunks.take();
      if (empty()) {
        first_ = chunk;
        begin_ = 0;
      } else {
        chunks[last_].next = chunk;
      }
      last_ = chunk;
      end_ = 0;
    }
    chunks[last_].packets[end_++] = packet;
  }
  /// There must be one.
  Packet pop(PacketChunks& chunks) {
    PacketChunk& chunk = chunks[first_];
    const Packet packet = chunk.packets[begin_++];
    const bool last = first_ == last_;
    if (begin_ == (last ? end_ : PacketChunk::kPackets)) {
      chunks.give_back(first_);
      first_ = last ? kNone : chunk.next;
      begin_ = 0;
    }
    return packet;
  }
  /// `visit(packet)` for each, the first first.
  template <class Visit>
  void for_each(const PacketChunks& chunks, Visit visit) const {
    std::uint16_t at = begin_;
    for (std::uint32_t chunk = first_; chunk != kNone; at = 0) {
      const bool last = chunk == last_;
      for (const std::uint16_t end = last ? end_ : PacketChunk::kPackets; at < end; ++at)
        visit(chunks[chunk].packets[at]);
      chunk = last ? kNone : chunks[chunk].next;
    }
  }
  /// Asks for the memory that front() reads.
  void fetch(const PacketChunks& chunks) const noexcept {
    if (!empty()) __builtin_prefetch(&front(chunks));
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  std::uint32_t first_ = kNone;
  std::uint32_t last_ = kNone;
  std::uint16_t begin_ = 0;  ///< of the first chunk
  std::uint16_t end_ = 0;    ///< of the last one
};

}  // namespace tensorwire::fabric
